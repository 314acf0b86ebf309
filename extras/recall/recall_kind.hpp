#pragma once

#include <memory>

#include "extras/recall/recall_task.hpp"
#include "tasks/programs.hpp"
#include "tasks/task.hpp"

namespace abh {

// Sequences of which one symbol is to be recalled (recall_task.hpp).
TaskKind recall_kind(const TaskPrograms& programs);

// What a checkpoint that recall_kind accepts says of its sequences.
RecallSize recall_size_of(const Metadata& metadata, const ModelConfig& config);

// What the programs do for them.
TaskPrograms recall_programs();
std::unique_ptr<TaskCommand> recall_drawing();

}  // namespace abh
