#pragma once

#include "tasks/programs.hpp"
#include "tasks/task.hpp"

namespace abh {

// Texts and their labels (reviews_task.hpp).
TaskKind reviews_kind(const TaskPrograms& programs);
TaskPrograms reviews_programs();

}  // namespace abh
