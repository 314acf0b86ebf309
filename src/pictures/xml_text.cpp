#include "pictures/xml_text.hpp"

#include "base/text.hpp"
#include "base/utf8.hpp"

namespace abh {

std::string xml_text(std::string_view bytes, std::size_t limit) {
  const std::string clean = one_line(std::string(bytes));
  std::string out;
  for (std::size_t position = 0, count = 0; position < clean.size(); ++count) {
    if (count == limit) return out + "\u2026";
    const std::size_t begin = position;
    const char32_t code = next_code_point(clean, position);
    if (code == invalid_code_point || code == 0xFFFE || code == 0xFFFF) {
      out += "\uFFFD";
      position = begin + 1;
    } else if (code == '&') {
      out += "&amp;";
    } else if (code == '<') {
      out += "&lt;";
    } else if (code == '>') {
      out += "&gt;";
    } else {
      out.append(clean, begin, position - begin);
    }
  }
  return out;
}

}  // namespace abh
