#include "extras/reviews/reviews_kind.hpp"

#include <string>

#include "base/error.hpp"
#include "base/text.hpp"
#include "extras/reviews/reviews_task.hpp"

namespace abh {

namespace {

void check_reviews(const Metadata& metadata, const ModelConfig& config, const std::string& source) {
  const ReviewWords known = words_of_reviews(metadata, source);
  held_back_in(metadata, source);
  require_size("vocabulary_size", static_cast<Index>(known.words.size()), config.vocabulary, source);
  require_size("classes", static_cast<Index>(known.labels.size()), config.classes, source);
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
          .rare_keys = {"unit", "held_back"},
          .programs = programs};
}

}  // namespace abh
