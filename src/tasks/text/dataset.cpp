#include "tasks/text/dataset.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/path.hpp"
#include "base/random.hpp"
#include "base/shuffle.hpp"

namespace abh {
namespace {

// Number below n from words `index` and index + 1: floor(bits / 2^64 * n). The probabilities of the n outcomes differ
// by at most a relative error of n / 2^64.
Index uniform_below(Index n, std::uint64_t seed, std::uint64_t index, std::uint32_t step, std::uint32_t site) {
  const std::uint64_t high = philox_word(seed, index, step, site), low = philox_word(seed, index + 1, step, site);
  __extension__ using Wide = unsigned __int128;
  return static_cast<Index>((static_cast<Wide>((high << 32) | low) * static_cast<Wide>(n)) >> 64);
}

}  // namespace

std::string corpus_name(const std::string& path) {
  const std::string name = path.substr(path.find_last_of(path_separators) + 1);
  const std::size_t dot = name.rfind('.');
  return dot == name.npos || dot == 0 || name == ".." ? name : name.substr(0, dot);
}

Dataset::Dataset(const std::string& path, std::string_view text, const Tokenizer& tokenizer, Index context)
    : name_(corpus_name(path)) {
  if (tokenizer.size() > 1 << 16) {
    tokens_.emplace<std::vector<Token>>();
  } else if (tokenizer.size() > 1 << 8) {
    tokens_.emplace<std::vector<std::uint16_t>>();
  }
  std::visit(
      [&]<class Narrow>(std::vector<Narrow>& tokens) {
        tokens.reserve(text.size());
        tokenizer.encode(text, path, [&](Token token) { tokens.push_back(static_cast<Narrow>(token)); });
        size_ = static_cast<Index>(tokens.size());
      },
      tokens_);
  const Index n = size_;
  training_size_ = n - n / 10;
  if (n == 0) throw Error(path + ": is empty, expected text");
  if (tokenizer.kind() == "char" && tokenizer.size() < 2) {
    throw Error(path + ": contains one distinct character, expected at least two");
  }
  const std::string unit = " " + tokenizer.unit() + "s";
  if (training_size_ < context + 1) {
    throw Error(path + ": too short: the training split has " + std::to_string(training_size_) + unit +
                ", expected context + 1 = " + std::to_string(context + 1) + " at least (see --context)");
  }
  if (validation_size() < 2) {
    throw Error(path + ": too short: the validation split, the last tenth, has " + std::to_string(validation_size()) +
                " of " + std::to_string(n) + unit + ", expected 2 at least");
  }
}

std::size_t Dataset::bytes() const {
  return std::visit([]<class Narrow>(const std::vector<Narrow>& tokens) { return tokens.size() * sizeof(Narrow); },
                    tokens_);
}

void Dataset::copy_tokens(Token* to, Index begin, Index count) const {
  std::visit([&](const auto& tokens) { std::copy_n(tokens.begin() + begin, count, to); }, tokens_);
}

Index Dataset::training_offset(Index b, Index C, std::uint64_t seed, std::uint32_t step) const {
  return uniform_below(training_size_ - C, seed, 2 * static_cast<std::uint64_t>(b), step, sites::batch);
}

Index Dataset::shuffled_offset(Index n, Index C, std::uint64_t seed) const {
  const Index windows = std::max(training_size_ / C - 1, Index{1});
  const Index shifts = std::min(C, training_size_ - windows * C);
  const auto epoch = static_cast<std::uint32_t>(n / windows);
  constexpr std::uint64_t after_order = std::uint64_t{1} << 63;
  const Index shift = uniform_below(shifts, seed, after_order, epoch, sites::order);
  return shift + C * shuffled(n % windows, windows, seed, epoch);
}

void Dataset::training_batch(Token* tokens_bc, Token* targets_bc, Index B, Index C, std::uint64_t seed,
                             std::uint32_t step, bool shuffled) const {
  for (Index b = 0; b < B; ++b) {
    const Index begin = shuffled ? shuffled_offset(Index{step} * B + b, C, seed) : training_offset(b, C, seed, step);
    copy_tokens(tokens_bc + b * C, begin, C);
    copy_tokens(targets_bc + b * C, begin + 1, C);
  }
}

Index Dataset::evaluation_rows(Index C, Index tokens) const {
  const Index all = validation_rows(C);
  return tokens == 0 ? all : std::min(all, (tokens + C - 1) / C);
}

void Dataset::validation_batch(Token* tokens_bc, Token* targets_bc, Index B, Index C, Index first_row,
                               Index rows) const {
  const Index all = validation_rows(C);
  for (Index b = 0; b < B; ++b) {
    const Index row = first_row + b, window = row < rows ? row * all / rows : all;
    lay_windows(tokens_bc + b * C, targets_bc + b * C, 1, C, window, validation_targets(),
                [&](Token* to, Index begin, Index count) { copy_tokens(to, training_size_ + begin, count); });
  }
}

}  // namespace abh
