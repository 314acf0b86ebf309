#include "tasks/text/text_kind.hpp"

#include <string>

#include "base/error.hpp"
#include "tasks/text/text_task.hpp"

namespace abh {

namespace {

void check_text(const Metadata& metadata, const ModelConfig& config, const std::string& source) {
  const Index known = tokenizer_of(metadata, source).size();
  if (config.vocabulary == known) return;
  throw Error(source + ": metadata vocabulary_size: expected the " + std::to_string(known) +
              " of the tokenizer, found " + std::to_string(config.vocabulary));
}

}  // namespace

TaskKind text_kind(const TaskPrograms& programs) {
  return {.name = "text",
          .summary = "the next character, or byte, of a text",
          .check = check_text,
          .keys = {"tokenizer", "vocabulary"},
          .complete =
              [](Metadata& metadata) {
                const auto tokenizer = metadata.find("tokenizer");
                if (tokenizer != metadata.end() && tokenizer->second == "byte") metadata.try_emplace("vocabulary", "");
              },
          .programs = programs};
}

}  // namespace abh
