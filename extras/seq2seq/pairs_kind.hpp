#pragma once

#include "tasks/task.hpp"

namespace abh {

// A user's own sources and targets (pairs_task.hpp).
TaskKind pairs_kind(const TaskPrograms& programs);

// What the programs do for them.
TaskPrograms pairs_programs();

}  // namespace abh
