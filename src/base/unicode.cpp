#include "base/unicode.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iterator>

namespace abh {

namespace {

// Ascending: 16 times the first code point of a run, plus its kind.
constexpr std::uint32_t runs[] = {
#include "base/unicode_runs.inc"
};

}  // namespace

CharacterKind character_kind(char32_t code) {
  const std::uint32_t last_of_code = 16 * static_cast<std::uint32_t>(code) + 15;
  return static_cast<CharacterKind>(*std::prev(std::upper_bound(std::begin(runs), std::end(runs), last_of_code)) % 16);
}

std::string code_text(char32_t code) {
  char text[16];
  std::snprintf(text, sizeof text, "U+%04X", static_cast<unsigned>(code));
  return text;
}

}  // namespace abh
