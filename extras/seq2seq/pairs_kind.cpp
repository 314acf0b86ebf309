#include "extras/seq2seq/pairs_kind.hpp"

#include <string>

#include "base/error.hpp"
#include "base/text.hpp"
#include "extras/seq2seq/pairs_task.hpp"

namespace abh {

namespace {

void check_pairs(const Metadata& metadata, const ModelConfig& config, const std::string& source) {
  const SequenceWords words = words_of_pairs(metadata, config.embeddings == "shared", source);
  require_sizes(words, config, source);
}

}  // namespace

TaskKind pairs_kind(const TaskPrograms& programs) {
  return {.name = "pairs",
          .summary = "sources and targets of a file",
          .check = check_pairs,
          .keys = {"tokenizer", "source_characters", "target_characters"},
          .complete = [](Metadata&) {},
          .programs = programs};
}

}  // namespace abh
