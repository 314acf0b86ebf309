#include "extras/reviews/drawn_reviews.hpp"

#include <array>
#include <cstdint>
#include <utility>

#include "base/random.hpp"

namespace abh {

namespace {

// Start of each kind of words in the list.
constexpr Token very = 1, negation = 2, positive = 3, negative = 11, neutral = 19, filler = 27;
constexpr std::uint32_t words_of_a_kind = 8;

}  // namespace

const std::vector<std::string>& drawn_words() {
  static const std::vector<std::string> words = {
      "",      "very", "not",   "good", "great", "fine", "lovely", "bright", "warm",  "funny",    "fresh",  "bad",
      "poor",  "dull", "awful", "cold", "slow",  "weak", "stale",  "long",   "short", "new",      "old",    "loud",
      "quiet", "dark", "early", "and",  "then",  "also", "still",  "well",   "so",    "honestly", "overall"};
  return words;
}

DrawnReview drawn_review(std::uint32_t example) {
  std::uint64_t next = 0;
  const auto below = [&](std::uint32_t n) {
    const std::uint64_t word = philox_word(0, next++, example, sites::reviews);
    return static_cast<Token>((word * n) >> 32);
  };
  using Clause = std::pair<Token, Token>;
  std::array<Clause, 6> clauses;
  int tone = 0, meaning = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    const bool blames = below(2) == 1;
    const Token adjective = (blames ? negative : positive) + below(words_of_a_kind);
    const bool negated = below(4) == 0;
    clauses[2 * i] = {negated ? negation : very, adjective};
    clauses[2 * i + 1] = {negated ? very : negation, neutral + below(words_of_a_kind)};
    tone += blames ? -1 : 1;
    meaning += blames != negated ? -1 : 1;
  }
  for (std::uint32_t i = 5; i > 0; --i) std::swap(clauses[i], clauses[static_cast<std::size_t>(below(i + 1))]);
  DrawnReview review{.words = {}, .tone = tone > 0, .meaning = meaning > 0};
  for (const auto& [first, second] : clauses) {
    for (Token left = below(3); left > 0; --left) review.words.push_back(filler + below(words_of_a_kind));
    review.words.insert(review.words.end(), {first, second});
  }
  return review;
}

}  // namespace abh
