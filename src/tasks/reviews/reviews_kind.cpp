#include "tasks/reviews/reviews_kind.hpp"

#include <string>

#include "base/error.hpp"
#include "base/text.hpp"
#include "tasks/reviews/reviews_task.hpp"

namespace abh {

namespace {

void check_reviews(const Metadata& metadata, const ModelConfig& config, const std::string& source) {
  const ReviewWords known = words_of_reviews(metadata, source);
  const auto require = [&](const std::string& key, Index expected, Index found) {
    if (expected == found) return;
    throw Error(source + ": metadata " + key + ": expected " + to_text(expected) + ", as the task says, found " +
                to_text(found));
  };
  require("vocabulary_size", static_cast<Index>(known.words.size()), config.vocabulary);
  require("classes", static_cast<Index>(known.labels.size()), config.classes);
}

}  // namespace

TaskKind reviews_kind(const TaskPrograms& programs) {
  return {.name = "reviews",
          .summary = "which label a text has",
          .check = check_reviews,
          .keys = {"labels", "label_names", "words"},
          .complete =
              [](Metadata& metadata) {
                metadata.try_emplace("label_names", "");
                metadata.try_emplace("words", "");
              },
          .programs = programs};
}

}  // namespace abh
