#pragma once

// Text as tokens: random training batches, and consecutive validation windows.

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/types.hpp"
#include "tasks/tokenizer.hpp"

namespace abh {

// Name of a text: the file name without folder and extension.
std::string corpus_name(const std::string& path);

// Splits tokens into consecutive windows of C: every token except the first is a target once. Fills rows first_row ..
// first_row + B - 1, as (B, C). After the end, tokens are 0 and targets ignored_target. copy(to, begin, count) copies
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
  // `text`: result of read_text_file(path); path: for the name and for errors. Error for a text that is too short: the
  // training split needs context + 1 tokens, the validation split 2. With a char tokenizer, error if all characters are
  // the same.
  Dataset(const std::string& path, std::string_view text, const Tokenizer& tokenizer, Index context);

  // Name of the text, corpus_name(path).
  const std::string& name() const { return name_; }
  // Training split: the first 90 % of the n tokens, n - n / 10.
  Index training_size() const { return training_size_; }
  Index validation_size() const { return size_ - training_size_; }
  // Memory of the tokens, in bytes.
  std::size_t bytes() const;

  // Start of row `b` of the batch of `step`: uniform over the training_size() - C starts of a window of C tokens, with
  // a target after the last one, in the training split. Rows are independent. Words 2b and 2b + 1 of site `batch`
  // (random.hpp). Here and below, C must be at most the context of the constructor.
  Index training_offset(Index b, Index C, std::uint64_t seed, std::uint32_t step) const;

  // Start of window `n` of a run that reads all windows once per epoch, in random order (base/shuffle.hpp). An epoch
  // has training_size() / C - 1 windows, at least one. They do not overlap, and they are shifted by a random number of
  // tokens below C, so that other tokens begin the windows of the next epoch. Fewer than 2 C tokens are not read.
  Index shuffled_offset(Index n, Index C, std::uint64_t seed) const;

  // Fills tokens_bc and targets_bc, both (B, C), with the batch of `step`. Targets are the tokens one position later.
  // shuffled: windows step B ... step B + B - 1 of shuffled_offset.
  void training_batch(Token* tokens_bc, Token* targets_bc, Index B, Index C, std::uint64_t seed, std::uint32_t step,
                      bool shuffled = false) const;

  // Validation split as windows of C tokens (lay_windows), with validation_targets() targets in total. The last window
  // may be partial.
  Index validation_targets() const { return validation_size() - 1; }
  Index validation_rows(Index C) const { return (validation_targets() + C - 1) / C; }

  // Number of windows for about `tokens` tokens, rounded up; all windows for 0 or too many tokens. And their targets:
  // the windows are evenly distributed, so the partial window is included only if all windows are.
  Index evaluation_rows(Index C, Index tokens) const;
  Index evaluation_targets(Index C, Index rows) const {
    return rows == validation_rows(C) ? validation_targets() : rows * C;
  }

  // Windows first_row .. first_row + B - 1 of `rows` windows, as (B, C). Rows after the last window have no targets.
  void validation_batch(Token* tokens_bc, Token* targets_bc, Index B, Index C, Index first_row, Index rows) const;

 private:
  void copy_tokens(Token* to, Index begin, Index count) const;

  std::string name_;
  // The whole text, in the narrowest type for its vocabulary: usually one byte per character.
  std::variant<std::vector<std::uint8_t>, std::vector<std::uint16_t>, std::vector<Token>> tokens_;
  Index size_ = 0, training_size_ = 0;
};

}  // namespace abh
