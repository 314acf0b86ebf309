#pragma once

#include <string>
#include <vector>

namespace abh {

// Texts that are no UTF-8 from their first byte on.
inline const std::vector<std::string> invalid_utf8 = {
    // No first byte.
    "\x80", "\xBF", "\xFE", "\xFF",
    // Truncated at the end of the text.
    "\xC2", "\xC3", "\xE2\x82", "\xF0\x9F\x98",
    // Truncated by another character.
    "\xC2 ", "\xC3(", "\xC3\xC3\xA9", "\xE2 \x82", "\xE2\x28\xA1", "\xE2\x82 ", "\xE2\x82(", "\xF0\x9F\x98 ",
    "\xF0\x9F\x98(", "\xF0\x9F\x28\x80",
    // Overlong: two bytes, three, four.
    "\xC0\x80", "\xC0\xAF", "\xC1\xBF", "\xE0\x80\x80", "\xE0\x9F\xBF", "\xF0\x80\x80\x80", "\xF0\x8F\xBF\xBF",
    // Surrogates.
    "\xED\xA0\x80", "\xED\xBF\xBF",
    // Above U+10FFFF.
    "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xF8\x88\x80\x80\x80"};

}  // namespace abh
