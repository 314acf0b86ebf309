#pragma once

#include <string>
#include <vector>

#include "base/types.hpp"

namespace abh {

// An endless set of generated reviews; example i is the same on every machine. A review has three positive or negative
// adjectives and three neutral ones. Some follow "not", the others "very". Every review has three of each, so word
// counts do not show which adjective is negated.
struct DrawnReview {
  std::vector<Token> words;  // at most longest_drawn_review; indices in drawn_words()
  bool tone = false;         // true: more positive than negative adjectives
  bool meaning = false;      // true: the same after each "not" inverts the adjective that follows
};
inline constexpr Index longest_drawn_review = 24;

// Uses words of site `reviews` of Philox with key 0 and the example index as step (extras/reviews/README.md).
DrawnReview drawn_review(std::uint32_t example);

// Index 0 is padding.
const std::vector<std::string>& drawn_words();

}  // namespace abh
