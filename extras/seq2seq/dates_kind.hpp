#pragma once

#include "tasks/task.hpp"

namespace abh {

// Dates as people write them, for machines (dates_task.hpp).
TaskKind dates_kind(const TaskPrograms& programs);

// What the programs do for them.
TaskPrograms dates_programs();

}  // namespace abh
