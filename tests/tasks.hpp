#pragma once

#include <string>
#include <vector>

#include "base/text.hpp"
#include "tasks/task.hpp"

namespace abh {

// The names of all tasks, as messages list them.
inline std::string listed_tasks() {
  std::vector<std::string> names;
  for (const TaskKind& kind : task_kinds()) names.push_back(kind.name);
  return listed(names);
}

}  // namespace abh
