#pragma once

#include <string>
#include <vector>

#include "base/types.hpp"

namespace abh {

// Reviews that the program makes up, without end: example number i is the same for everybody. Three adjectives that
// praise or blame, three that do neither, some of them behind "not", the others behind "very"; every review has three
// of each, so that their counts say nothing of what is negated.
struct DrawnReview {
  std::vector<Token> words;  // at most longest_drawn_review, numbers in drawn_words()
  bool tone = false;         // more adjectives that praise than that blame
  bool meaning = false;      // the same where "not" turns the adjective behind it
};
inline constexpr Index longest_drawn_review = 24;

// Words of site `reviews` of Philox with key 0 and the example as step (extras/reviews/README.md).
DrawnReview drawn_review(std::uint32_t example);

// Word number 0 is padding, and no word.
const std::vector<std::string>& drawn_words();

}  // namespace abh
