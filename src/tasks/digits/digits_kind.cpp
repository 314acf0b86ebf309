#include "tasks/digits/digits_kind.hpp"

#include <string>

#include "base/error.hpp"
#include "base/text.hpp"
#include "tasks/digits/digits_task.hpp"

namespace abh {

namespace {

void check_digits(const Metadata& metadata, const ModelConfig& config, const std::string& source) {
  const std::string& text = metadata.at("patch");
  const std::optional<Index> patch = from_text<Index>(text);
  if (!patch) throw Error(source + ": metadata patch: expected a number, found \"" + one_line(text) + "\"");
  if (const std::string fault = fault_of_patch(*patch); !fault.empty()) {
    throw Error(source + ": metadata patch: " + fault);
  }
  ModelConfig expected = config;
  DigitsTask(*patch, config.has_cls()).shape(expected);
  const auto require = [&](const std::string& key, Index wanted, Index found) {
    if (wanted == found) return;
    throw Error(source + ": metadata " + key + ": expected " + to_text(wanted) + ", as the task says, found " +
                to_text(found));
  };
  require("patch_inputs", expected.patch_inputs, config.patch_inputs);
  require("classes", expected.classes, config.classes);
  require("context", expected.context, config.context);
}

}  // namespace

TaskKind digits_kind(const TaskPrograms& programs) {
  return {.name = "digits",
          .summary = "which digit a picture shows",
          .check = check_digits,
          .keys = {"patch"},
          .complete = [](Metadata&) {},
          .programs = programs};
}

}  // namespace abh
