#pragma once

#include <memory>

#include "tasks/programs.hpp"
#include "tasks/sort/sort_task.hpp"
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

// What the programs do for them.
TaskPrograms sort_programs();
std::unique_ptr<TaskTraining> sort_training();
std::unique_ptr<TaskCommand> sort_evaluation();
std::unique_ptr<TaskCommand> sort_generation();

}  // namespace abh
