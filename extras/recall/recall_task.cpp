#include "extras/recall/recall_task.hpp"

#include <algorithm>

#include "base/random.hpp"
#include "base/text.hpp"

namespace abh {

namespace {

// All runs see the same sequences, whatever their own seed.
constexpr std::uint64_t data_seed = 0;
constexpr Index test_sequences = 1000, most_bins = 8;

}  // namespace

RecallExample recall_example(std::uint32_t example, const RecallSize& size) {
  std::uint64_t word = 0;
  const auto below = [&](Index n) {
    const std::uint64_t random = philox_word(data_seed, word++, example, sites::recall);
    return static_cast<Index>((random * static_cast<std::uint64_t>(n)) >> 32);
  };
  RecallExample drawn{.token_c = {}, .symbol = 0, .distance = 1 + below(size.reach)};
  drawn.symbol = static_cast<Token>(below(recall_symbols));
  for (Index c = 0; c < size.context - 1; ++c) drawn.token_c.push_back(static_cast<Token>(below(recall_symbols)));
  drawn.token_c.push_back(recall_marker);
  const auto at = drawn.token_c.end() - 1 - drawn.distance;
  *(at - 1) = recall_marker;
  *at = drawn.symbol;
  return drawn;
}

RecallTask::RecallTask(const RecallSize& size)
    : AnswerTask("recall", size.context, 1, 0, test_sequences), size_(size) {}

Metadata RecallTask::metadata() const { return {{"task", "recall"}, {"reach", to_text(size_.reach)}}; }

void RecallTask::shape(ModelConfig& config) const {
  config.vocabulary = recall_vocabulary;
  config.context = size_.context;
}

std::string RecallTask::summary() const {
  return "drawn sequences of " + to_text(size_.context) + " symbols, one to be recalled from at most " +
         to_text(size_.reach) + " back, " + to_text(test_sequences) + " for testing";
}

void RecallTask::append(Batch& batch, Index example) const {
  const RecallExample drawn = recall_example(static_cast<std::uint32_t>(example), size_);
  append_recall(batch, drawn.token_c, drawn.symbol);
}

void append_recall(Batch& batch, const std::vector<Token>& token_c, Token symbol) {
  batch.token_bc.insert(batch.token_bc.end(), token_c.begin(), token_c.end());
  batch.target_r.insert(batch.target_r.end(), token_c.size() - 1, ignored_target);
  batch.target_r.push_back(symbol);
  ++batch.B;
}

std::string RecallTask::shown(const Batch& batch, Index b, const std::vector<Token>& best_r) const {
  const auto row = batch.token_bc.begin() + b * batch.C;
  const Index distance = batch.C - 2 - (std::find(row, row + batch.C, recall_marker) - row);
  const auto last = static_cast<std::size_t>((b + 1) * batch.C - 1);
  return "the symbol " + to_text(distance) + " back -> " + to_text(best_r[last]) +
         (best_r[last] == batch.target_r[last] ? "" : ", expected " + to_text(batch.target_r[last]));
}

Index RecallTask::bins() const { return std::min(most_bins, size_.reach); }

std::vector<std::string> RecallTask::kinds() const {
  std::vector<std::string> names;
  for (Index bin = 0; bin < bins(); ++bin) {
    // The distances d for which (d - 1) bins / reach is this bin.
    const auto first = [&](Index of) { return 1 + (of * size_.reach + bins() - 1) / bins(); };
    names.push_back("distance " + to_text(first(bin)) + " to " + to_text(first(bin + 1) - 1));
  }
  return names;
}

std::size_t RecallTask::kind(Index example) const {
  const Index distance = recall_example(static_cast<std::uint32_t>(example), size_).distance;
  return static_cast<std::size_t>((distance - 1) * bins() / size_.reach);
}

}  // namespace abh
