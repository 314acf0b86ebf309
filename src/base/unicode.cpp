#include "base/unicode.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iterator>

namespace abh {

namespace {

// Sorted: 16 times the first code point of a run, plus its kind, plus 5 times its part in words.
constexpr std::uint32_t kinds = 5, runs[] = {
#include "base/unicode_runs.inc"
};

std::uint32_t kind_and_part(char32_t code) {
  const std::uint32_t last_of_code = 16 * static_cast<std::uint32_t>(code) + 15;
  return *std::prev(std::upper_bound(std::begin(runs), std::end(runs), last_of_code)) % 16;
}

}  // namespace

CharacterKind character_kind(char32_t code) { return static_cast<CharacterKind>(kind_and_part(code) % kinds); }

WordPart word_part(char32_t code) { return static_cast<WordPart>(kind_and_part(code) / kinds); }

std::string code_text(char32_t code) {
  char text[16];
  std::snprintf(text, sizeof text, "U+%04X", static_cast<unsigned>(code));
  return text;
}

}  // namespace abh
