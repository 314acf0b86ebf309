#pragma once

// UTF-8 and its code points, strict: overlong forms, surrogates and values above U+10FFFF are invalid (Unicode 15,
// table 3-7).

#include <cstddef>
#include <string>
#include <string_view>

namespace abh {

inline constexpr char32_t code_points = 0x110000;  // number of code points, including surrogates
inline constexpr char32_t invalid_code_point = 0xFFFFFFFF;

// Reads the code point at `position` < text.size() and advances. Returns invalid_code_point, without advancing, if no
// valid sequence starts there.
inline char32_t next_code_point(std::string_view text, std::size_t& position) {
  const auto first = static_cast<unsigned char>(text[position]);
  if (first < 0x80) {
    ++position;
    return first;
  }
  // 0x80..0xC1 are continuations and overlong two-byte forms; sequences above 0xF4 are at least U+110000.
  if (first < 0xC2 || first > 0xF4) return invalid_code_point;
  const std::size_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  if (text.size() - position < length) return invalid_code_point;
  char32_t code = first & (0x7FU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    const auto byte = static_cast<unsigned char>(text[position + i]);
    if ((byte & 0xC0U) != 0x80) return invalid_code_point;
    code = (code << 6) | (byte & 0x3FU);
  }
  const char32_t smallest = length == 2 ? 0x80 : length == 3 ? 0x800 : 0x10000;
  if (code < smallest || code >= code_points || (code >= 0xD800 && code < 0xE000)) return invalid_code_point;
  position += length;
  return code;
}

// `code` is a valid code point, as next_code_point returns it.
inline void append_utf8(std::string& text, char32_t code) {
  const auto append = [&text](char32_t byte) { text += static_cast<char>(static_cast<unsigned char>(byte)); };
  if (code < 0x80) {
    append(code);
  } else if (code < 0x800) {
    append(0xC0 | (code >> 6));
    append(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    append(0xE0 | (code >> 12));
    append(0x80 | ((code >> 6) & 0x3F));
    append(0x80 | (code & 0x3F));
  } else {
    append(0xF0 | (code >> 18));
    append(0x80 | ((code >> 12) & 0x3F));
    append(0x80 | ((code >> 6) & 0x3F));
    append(0x80 | (code & 0x3F));
  }
}

}  // namespace abh
