#pragma once

// A text as tokens: the training batches, drawn at random, and the validation windows, laid end to end.

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/types.hpp"
#include "tasks/tokenizer.hpp"

namespace abh {

// The name of a text: its file's name without folder and extension.
std::string corpus_name(const std::string& path);

// Lays tokens end to end as windows of C: each token but the first is one of the `targets` once. Fills rows first_row
// .. first_row + B - 1, as (B, C); past the end tokens are 0 and targets ignored_target. copy(to, begin, count) gives
// tokens.
template <class Copy>
void lay_windows(Token* tokens_bc, Token* targets_bc, Index B, Index C, Index first_row, Index targets,
                 const Copy& copy) {
  for (Index b = 0; b < B; ++b) {
    const Index start = (first_row + b) * C;
    const Index filled = std::clamp(targets - start, Index{0}, C);
    Token* tokens_c = tokens_bc + b * C;
    Token* targets_c = targets_bc + b * C;
    if (filled > 0) {
      copy(tokens_c, start, filled);
      copy(targets_c, start + 1, filled);
    }
    std::fill(tokens_c + filled, tokens_c + C, Token{0});
    std::fill(targets_c + filled, targets_c + C, ignored_target);
  }
}

class Dataset {
 public:
  // `text` is what read_text_file(path) gave; path names the corpus and the errors. Throws Error for a text that is too
  // short (the training split needs context + 1 tokens, the validation split 2) and, with a char tokenizer, for one in
  // which every character is the same: there is nothing to learn in it.
  Dataset(const std::string& path, std::string_view text, const Tokenizer& tokenizer, Index context);

  // corpus_name(path).
  const std::string& name() const { return name_; }
  // The training split: the first 90 % of the n tokens of the text, n - n / 10.
  Index training_size() const { return training_size_; }
  Index validation_size() const { return size_ - training_size_; }
  // Bytes of memory that it takes.
  std::size_t bytes() const;

  // Where row `b` of the batch of `step` starts: uniform over the training_size() - C places at which a window of C
  // tokens and the target after its last one lie in the training split. Rows are drawn independently of each other.
  // Words 2b and 2b + 1 of site `batch` (random.hpp). Precondition, here and below: C <= the constructor's context.
  Index training_offset(Index b, Index C, std::uint64_t seed, std::uint32_t step) const;

  // Fills tokens_bc and targets_bc, both (B, C), with the batch of `step`; targets are the tokens one position later.
  void training_batch(Token* tokens_bc, Token* targets_bc, Index B, Index C, std::uint64_t seed,
                      std::uint32_t step) const;

  // The validation split as windows of C tokens, see lay_windows: validation_targets() targets in all; the last window
  // may be partial.
  Index validation_targets() const { return validation_size() - 1; }
  Index validation_rows(Index C) const { return (validation_targets() + C - 1) / C; }

  // How many of these windows hold about so many tokens, rounded up; all for 0 tokens or more than there are. And their
  // targets: rows lie evenly spread over the split, so the partial window is one of them only if all are.
  Index evaluation_rows(Index C, Index tokens) const;
  Index evaluation_targets(Index C, Index rows) const {
    return rows == validation_rows(C) ? validation_targets() : rows * C;
  }

  // Windows first_row .. first_row + B - 1 of so many spread over the split, as (B, C); past the last one rows have no
  // targets.
  void validation_batch(Token* tokens_bc, Token* targets_bc, Index B, Index C, Index first_row, Index rows) const;

 private:
  void copy_tokens(Token* to, Index begin, Index count) const;

  std::string name_;
  // The whole text, as narrow as its vocabulary allows: a byte a character, as a rule.
  std::variant<std::vector<std::uint8_t>, std::vector<std::uint16_t>, std::vector<Token>> tokens_;
  Index size_ = 0, training_size_ = 0;
};

}  // namespace abh
