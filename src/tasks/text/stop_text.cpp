#include "tasks/text/stop_text.hpp"

#include <utility>

namespace abh {

StopText::StopText(std::string text) : text_(std::move(text)), border_(text_.size()) {
  for (std::size_t i = 1, matched = 0; i < text_.size(); ++i) {
    while (matched > 0 && text_[i] != text_[matched]) matched = border_[matched - 1];
    if (text_[i] == text_[matched]) ++matched;
    border_[i] = matched;
  }
}

std::string StopText::add(std::string_view piece) {
  if (text_.empty()) return std::string(piece);
  std::string free;
  for (const char byte : piece) {
    if (found()) break;
    while (matched_ > 0 && byte != text_[matched_]) {
      // The longest shorter match releases the bytes before it.
      const std::size_t shorter = border_[matched_ - 1];
      free.append(text_, 0, matched_ - shorter);
      matched_ = shorter;
    }
    if (byte == text_[matched_]) {
      ++matched_;
    } else {
      free += byte;
    }
  }
  return free;
}

}  // namespace abh
