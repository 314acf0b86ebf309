#include "tasks/task.hpp"

#include "base/error.hpp"
#include "base/text.hpp"

namespace abh {

const TaskKind& kind_of_task(const Metadata& metadata, const std::string& source, TaskKinds kinds) {
  const auto entry = metadata.find("task");
  const std::string name = entry == metadata.end() ? kinds.front().name : entry->second;
  std::vector<std::string> known;
  for (const TaskKind& kind : kinds) {
    if (kind.name == name) return kind;
    known.push_back(kind.name);
  }
  throw Error(source + ": metadata task: expected " + listed(known) + ", found \"" + one_line(name) + "\"");
}

}  // namespace abh
