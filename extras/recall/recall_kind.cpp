#include "extras/recall/recall_kind.hpp"

#include <string>

#include "base/error.hpp"
#include "base/text.hpp"

namespace abh {

namespace {

void check_recall(const Metadata& metadata, const ModelConfig& config, const std::string& source) {
  require_size("vocabulary_size", recall_vocabulary, config.vocabulary, source);
  require_size("classes", 0, config.classes, source);
  if (config.context < shortest_recall) {
    throw Error(source + ": metadata context: expected at least " + to_text(shortest_recall) + ", found " +
                to_text(config.context));
  }
  number_in(metadata, "reach", 1, RecallSize::farthest(config.context), source);
}

}  // namespace

TaskKind recall_kind(const TaskPrograms& programs) {
  return {.name = "recall",
          .summary = "the symbol behind a marker, far back",
          .check = check_recall,
          .keys = {"reach"},
          .complete = [](Metadata&) {},
          .programs = programs};
}

RecallSize recall_size_of(const Metadata& metadata, const ModelConfig& config) {
  return {.context = config.context, .reach = *from_text<Index>(metadata.at("reach"))};
}

}  // namespace abh
