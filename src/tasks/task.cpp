#include "tasks/task.hpp"

#include "base/error.hpp"
#include "base/extras.hpp"
#include "base/text.hpp"

namespace abh {

void require_size(const std::string& key, Index expected, Index found, const std::string& source) {
  if (expected == found) return;
  throw Error(source + ": metadata " + key + ": expected " + to_text(expected) + ", as the task says, found " +
              to_text(found));
}

Index number_in(const Metadata& metadata, const std::string& key, Index low, Index high, const std::string& source) {
  const std::string& text = metadata.at(key);
  const std::optional<Index> number = from_text<Index>(text);
  if (number && *number >= low && *number <= high) return *number;
  throw Error(source + ": metadata " + key + ": expected a whole number from " + to_text(low) + " to " + to_text(high) +
              ", found " + in_quotes(text));
}

std::vector<std::string> names_of(TaskKinds kinds) {
  std::vector<std::string> names;
  for (const TaskKind& kind : kinds) names.push_back(kind.name);
  return names;
}

const TaskKind& kind_of_task(const Metadata& metadata, const std::string& source, TaskKinds kinds) {
  const auto entry = metadata.find("task");
  const std::string name = entry == metadata.end() ? kinds.front().name : entry->second;
  for (const TaskKind& kind : kinds) {
    if (kind.name == name) return kind;
  }
  require_features({{"task", name}}, {}, source);
  throw Error(source + ": metadata task: expected " + listed(names_of(kinds)) + ", found " + in_quotes(name));
}

}  // namespace abh
