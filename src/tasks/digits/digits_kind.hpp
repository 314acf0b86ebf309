#pragma once

#include "tasks/programs.hpp"
#include "tasks/task.hpp"

namespace abh {

// Pictures of digits (digits_task.hpp).
TaskKind digits_kind(const TaskPrograms& programs);
TaskPrograms digits_programs();

}  // namespace abh
