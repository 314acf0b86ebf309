#include "extras/seq2seq/seq2seq_task.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"

namespace abh {

namespace {

// Keeps the first `kept` tokens of every row of `count` tokens.
void shorten(std::vector<Token>& rows, Index count, Index kept) {
  if (kept == count) return;
  std::vector<Token> shorter;
  for (auto row = rows.begin(); row != rows.end(); row += count) shorter.insert(shorter.end(), row, row + kept);
  rows = std::move(shorter);
}

// Number of needed columns out of `count`: up to the last one with is_needed, at least one.
template <class IsNeeded>
Index needed_columns(const std::vector<Token>& rows, Index count, const IsNeeded& is_needed) {
  Index needed = 1;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (is_needed(rows[i])) needed = std::max(needed, static_cast<Index>(i) % count + 1);
  }
  return needed;
}

}  // namespace

Seq2SeqTask::Seq2SeqTask(std::string name, SequenceWords words, Index longest_source, Index longest_target,
                         Index training_examples, Index test_examples)
    : AnswerTask(std::move(name), longest_target, longest_target, training_examples, test_examples),
      words_(std::move(words)),
      S_(std::max<Index>(longest_source, 1)),
      longest_target_(longest_target) {}

void Seq2SeqTask::shape(ModelConfig& config) const {
  config.source_vocabulary = words_.source_size();
  config.vocabulary = words_.target_size();
  config.source_context = S_;
  config.context = longest_target_;
}

void Seq2SeqTask::append(Batch& batch, Index example) const {
  const Pair pair = this->pair(example);
  const auto fill = [](std::vector<Token>& rows, Index count, Token token) {
    rows.insert(rows.end(), static_cast<std::size_t>(count), token);
  };
  const Index source = static_cast<Index>(pair.source.size()), target = static_cast<Index>(pair.target.size());
  batch.S = S_;
  batch.source_bs.insert(batch.source_bs.end(), pair.source.begin(), pair.source.end());
  fill(batch.source_bs, S_ - source, SequenceWords::padding);
  fill(batch.source_mask_bs, source, 1);
  fill(batch.source_mask_bs, S_ - source, 0);
  const Index behind = longest_target_ - target - 1;
  batch.token_bc.push_back(SequenceWords::begin);
  batch.token_bc.insert(batch.token_bc.end(), pair.target.begin(), pair.target.end());
  fill(batch.token_bc, behind, SequenceWords::padding);
  batch.target_r.insert(batch.target_r.end(), pair.target.begin(), pair.target.end());
  batch.target_r.push_back(SequenceWords::end);
  fill(batch.target_r, behind, ignored_target);
  ++batch.B;
}

std::string Seq2SeqTask::shown(const Batch& batch, Index b, const std::vector<Token>& best_r) const {
  const auto R = static_cast<std::size_t>(batch.C) * static_cast<std::size_t>(b);
  std::vector<Token> said, expected;
  for (std::size_t r = R; r < R + static_cast<std::size_t>(batch.C); ++r) {
    if (batch.target_r[r] == ignored_target) continue;
    said.push_back(best_r[r]);
    expected.push_back(batch.target_r[r]);
  }
  const auto text = [&](const std::vector<Token>& tokens) {
    return words_.target_text(tokens.data(), static_cast<Index>(tokens.size()));
  };
  return escaped_line(words_.source_text(batch.source_bs.data() + b * batch.S, batch.S) + " -> " + text(said) +
                      (said == expected ? "" : ", expected " + text(expected)));
}

void require_sizes(const SequenceWords& words, const ModelConfig& config, const std::string& source) {
  require_size("source_vocabulary_size", words.source_size(), config.source_vocabulary, source);
  require_size("vocabulary_size", words.target_size(), config.vocabulary, source);
  require_size("causal", 1, config.causal ? 1 : 0, source);  // otherwise the decoder would attend to its targets
}

Batch batch_of_source(const std::vector<Token>& source) {
  Batch batch{.B = 1, .C = 1, .token_bc = {SequenceWords::begin}};
  batch.S = std::max<Index>(static_cast<Index>(source.size()), 1);
  batch.source_bs = source;
  // An empty source becomes one masked position.
  if (source.empty()) batch.source_bs = batch.source_mask_bs = {0};
  return batch;
}

void cut_padding(Batch& batch) {
  const Index S = needed_columns(batch.source_mask_bs, batch.S, [](Token is_real) { return is_real != 0; });
  const Index C = needed_columns(batch.target_r, batch.C, [](Token target) { return target != ignored_target; });
  shorten(batch.source_bs, batch.S, S);
  shorten(batch.source_mask_bs, batch.S, S);
  shorten(batch.token_bc, batch.C, C);
  shorten(batch.target_r, batch.C, C);
  batch.S = S;
  batch.C = C;
}

}  // namespace abh
