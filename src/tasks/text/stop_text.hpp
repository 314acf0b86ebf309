#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace abh {

// Search for a stop text in a text that arrives in pieces. The stop text may cross pieces, or start again within
// itself. Memory is proportional to the stop text, time to the pieces. (Knuth, Morris, Pratt, "Fast pattern matching in
// strings", 1977.)
class StopText {
 public:
  // An empty stop text is never found.
  explicit StopText(std::string text);

  // Returns the bytes that are known to precede the stop text. Keeps bytes that may begin the stop text. Returns
  // nothing after the stop text was found.
  std::string add(std::string_view piece);
  bool found() const { return !text_.empty() && matched_ == text_.size(); }
  // Bytes that are kept, if the text ends without the stop text.
  std::string_view held_back() const { return std::string_view(text_).substr(0, found() ? 0 : matched_); }

 private:
  std::string text_;
  std::vector<std::size_t> border_;  // per prefix of i + 1 bytes: length of its longest proper border
  std::size_t matched_ = 0;          // length of the prefix that matches the last bytes
};

}  // namespace abh
