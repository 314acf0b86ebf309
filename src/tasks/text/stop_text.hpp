#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace abh {

// A text that ends another one, which comes in pieces: it may lie across them, or begin again inside of itself. Memory
// for the stop text alone, and time for the pieces alone. (Knuth, Morris, Pratt, "Fast pattern matching in strings",
// 1977.)
class StopText {
 public:
  // An empty one never comes.
  explicit StopText(std::string text);

  // Returns the text that is now known to precede the stop text. Holds back bytes that may begin the stop text. Returns
  // nothing more after the stop text was found.
  std::string add(std::string_view piece);
  bool found() const { return !text_.empty() && matched_ == text_.size(); }
  // The text that is held back, for a text that ends without it.
  std::string_view held_back() const { return std::string_view(text_).substr(0, found() ? 0 : matched_); }

 private:
  std::string text_;
  std::vector<std::size_t> border_;  // of the first i + 1 bytes: how many of their last are their first, not all
  std::size_t matched_ = 0;          // so many of its bytes are the last that came
};

}  // namespace abh
