#pragma once

#include <memory>
#include <string>

#include "tasks/answers.hpp"
#include "tasks/programs.hpp"
#include "tasks/task.hpp"

namespace abh {

// Texts and their labels (reviews_task.hpp).
TaskKind reviews_kind(const TaskPrograms& programs);
TaskPrograms reviews_programs();
std::unique_ptr<TaskTraining> reviews_training();
std::unique_ptr<TaskCommand> reviews_drawing();

// The task of a checkpoint once more. Error, which names `source`, where it needs a file and there is none, or the
// other way round.
std::unique_ptr<AnswerTask> reviews_again(const Metadata& task, const ModelConfig& config, const OwnExamples& own,
                                          const std::string& source);

}  // namespace abh
