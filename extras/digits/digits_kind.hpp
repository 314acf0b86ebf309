#pragma once

#include <memory>
#include <string>

#include "extras/digits/picture.hpp"
#include "tasks/answers.hpp"
#include "tasks/programs.hpp"
#include "tasks/task.hpp"

namespace abh {

// Pictures of digits (digits_task.hpp).
TaskKind digits_kind(const TaskPrograms& programs);
TaskPrograms digits_programs();
std::unique_ptr<TaskTraining> digits_training();
std::unique_ptr<TaskCommand> digits_drawing();

// The task of a checkpoint, the file `source`, again, of drawn digits where there are no others.
std::unique_ptr<AnswerTask> digits_again(const Metadata& task, const ModelConfig& config, const OwnExamples& own,
                                         const std::string& source);

// What the metadata of a checkpoint, the file `source`, say of its pictures: whether they are a user's, and how they
// are cut. Error for what cannot be.
bool is_of_file(const Metadata& task);
PatchGrid grid_of_task(const Metadata& task, const std::string& source);

}  // namespace abh
