#pragma once

#include <memory>
#include <string>
#include <vector>

#include "extras/sort/sort_task.hpp"
#include "tasks/programs.hpp"
#include "tasks/task.hpp"

namespace abh {

// Arrays: their digits in ascending order are asked for (sort_task.hpp).
TaskKind sort_kind(const TaskPrograms& programs);

// What a checkpoint that sort_kind accepts says of its arrays.
ArraySize array_size_of(const Metadata& metadata);

// A network of the file `source` is given arrays of this length. Error, which names `what` asks for it, if it is
// another than it was trained on and its positions are a table, which ends.
void require_length(const Trained& trained, Index length, const std::string& what, const std::string& source);
// Makes it one of such arrays.
void set_length(Trained& trained, Index length);

// The digits of a line with spaces between them; they may be more or fewer than `size` says. Error, which names `what`.
std::vector<Token> array_of_line(const std::string& line, const ArraySize& size, const std::string& what);

// What the programs do for them.
TaskPrograms sort_programs();
std::unique_ptr<TaskTraining> sort_training();
std::unique_ptr<TaskCommand> sort_evaluation();
std::unique_ptr<TaskCommand> sort_generation();
std::unique_ptr<TaskCommand> sort_drawing();

}  // namespace abh
