#include "extras/digits/digits_kind.hpp"

#include <string>

#include "base/error.hpp"
#include "base/text.hpp"
#include "extras/digits/digits_task.hpp"

namespace abh {

PatchGrid grid_of_task(const Metadata& task, const std::string& source) {
  const auto number = [&](const std::string& key, Index high) {
    const auto entry = task.find(key);
    if (entry == task.end()) throw Error(source + ": metadata has no " + key + ", expected height and width");
    const std::optional<Index> value = from_text<Index>(entry->second);
    if (value && *value >= 1 && *value <= high) return *value;
    throw Error(source + ": metadata " + key + ": expected 1 to " + to_text(high) + ", found " +
                in_quotes(entry->second));
  };
  PatchGrid grid{drawn_side, drawn_side, number("patch", largest_patch)};
  if (is_of_file(task)) {
    grid.height = number("height", largest_side);
    grid.width = number("width", largest_side);
  }
  if (const std::string fault = fault_of_patch(grid.height, grid.width, grid.patch); !fault.empty()) {
    throw Error(source + ": metadata patch: " + fault);
  }
  return grid;
}

bool is_of_file(const Metadata& task) { return task.contains("height") || task.contains("width"); }

namespace {

void check_digits(const Metadata& metadata, const ModelConfig& config, const std::string& source) {
  ModelConfig expected = config;
  DigitsTask::shape_of_grid(grid_of_task(metadata, source), config.has_cls(), expected);
  require_size("patch_inputs", expected.patch_inputs, config.patch_inputs, source);
  require_size("classes", expected.classes, config.classes, source);
  require_size("context", expected.context, config.context, source);
}

// A patch has as many pixels as a network has inputs, and is a square.
void see_patch(Metadata& metadata) {
  const auto inputs = metadata.find("patch_inputs");
  if (inputs == metadata.end()) return;
  for (Index patch = 1; patch <= largest_patch; ++patch) {
    if (to_text(patch * patch) == inputs->second) metadata.try_emplace("patch", to_text(patch));
  }
}

}  // namespace

TaskKind digits_kind(const TaskPrograms& programs) {
  return {.name = "digits",
          .summary = "which digit a picture shows",
          .check = check_digits,
          .keys = {"patch"},
          .complete = see_patch,
          .rare_keys = {"height", "width"},
          .programs = programs};
}

}  // namespace abh
