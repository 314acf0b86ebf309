#pragma once

#include <memory>

#include "tasks/programs.hpp"
#include "tasks/task.hpp"

namespace abh {

// Texts: the next character, or byte, is asked for (text_task.hpp).
TaskKind text_kind(const TaskPrograms& programs);

// What the programs do for them.
TaskPrograms text_programs();
std::unique_ptr<TaskTraining> text_training();
std::unique_ptr<TaskCommand> text_evaluation();
std::unique_ptr<TaskCommand> text_generation();
std::unique_ptr<TaskCommand> text_drawing();

}  // namespace abh
