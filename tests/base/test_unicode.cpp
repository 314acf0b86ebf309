// Tests of the character properties: against known characters, and against Python's Unicode data.

#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "base/unicode.hpp"
#include "base/utf8.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/folder.hpp"

using namespace abh;

namespace {

// The standard output of a command.
std::string output_of(const std::string& command) {
  std::FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string output;
  for (int c; (c = std::fgetc(pipe)) != EOF;) output += static_cast<char>(c);
  REQUIRE(pclose(pipe) == 0);
  return output;
}

}  // namespace

TEST_CASE("unicode: known characters", "[unicode]") {
  const std::map<CharacterKind, std::vector<char32_t>> known = {
      // NUL, tab, line break, escape, delete, CSI; line and paragraph; surrogate; private; not assigned, nor ever
      {CharacterKind::hidden,
       {0,      9,      10,     0x1B,    0x1F,     0x7F,  0x80,   0x9B,   0x9F,   0x2028,  0x2029,  0xD800,
        0xDFFF, 0xE000, 0xF8FF, 0xF0000, 0x10FFFD, 0x378, 0x2FE0, 0xFFFE, 0xFFFF, 0x1FFFE, 0x10FFFF}},
      // soft hyphen, Arabic sign, zero-width space, joiners, directions, selectors, mark of byte order, tags
      {CharacterKind::format,
       {0xAD,   0x600,  0x61C,  0x200B, 0x200C, 0x200D, 0x200E,  0x200F,  0x202A,  0x202E,  0x2060,
        0x2066, 0x2069, 0x180B, 0xFE00, 0xFE0F, 0xFEFF, 0xE0001, 0xE0020, 0xE007F, 0xE0100, 0xE01EF}},
      // accents, enclosing ones, Hebrew, Arabic, Devanagari and Thai vowels, Japanese sounds, parts of Korean syllables
      {CharacterKind::mark,
       {0x300, 0x301, 0x36F, 0x488, 0x5B0, 0x64B, 0x93C, 0x941, 0xE31, 0xE34, 0xE4E, 0x1160, 0x11A8, 0x11FF, 0x20D0,
        0x20E3, 0x3099, 0xD7B0, 0x1D167}},
      {CharacterKind::narrow, {' ',   'a',    '~',    0xA0,   0xE9,   0x3B1,  0x416,  0x5D0,  0x627,   0x903,  0xE01,
                               0xE33, 0x2013, 0x20AC, 0x21B5, 0x2409, 0x2764, 0xFF61, 0xFFFD, 0x1D400, 0x1F1E6}},
      // Korean, kana, ideographs, full-width letters, emoji
      {CharacterKind::wide,
       {0x1100, 0x231A, 0x3000, 0x3001, 0x3042, 0x30A2, 0x4E00, 0x9FFF, 0xAC00, 0xD7A3, 0xFF01, 0x1F300, 0x1F3FB,
        0x1F600, 0x1F9D1, 0x20000, 0x30000}}};
  for (const auto& [kind, codes] : known) {
    for (const char32_t code : codes) {
      INFO(code_text(code));
      CHECK(static_cast<int>(character_kind(code)) == static_cast<int>(kind));
    }
  }
  CHECK(code_text('a') == "U+0061");
  CHECK(code_text(0x10FFFF) == "U+10FFFF");
}

TEST_CASE("unicode: letters, numbers and marks belong to words", "[unicode]") {
  const std::map<WordPart, std::vector<char32_t>> known = {
      // blanks, dashes, quotes, ellipsis, euro, full stops and commas, joiners, emoji, mark of byte order, surrogate
      {WordPart::none, {0,      ' ',    '-',    '\'',   0xA0,   0xAD,   0x2009, 0x200B, 0x200D,  0x2013, 0x2019, 0x201C,
                        0x2026, 0x20AC, 0x3000, 0x3001, 0x3002, 0x2764, 0xFEFF, 0xFF01, 0x1F600, 0xD800, 0xE000}},
      // digits, superscripts and fractions, modifier letters, ideographs, kana, parts of Korean syllables
      {WordPart::letter, {'0',   '9',   'A',    'z',    0xB2,   0xBD,   0xE9,   0x2BC,  0x416,  0x5D0,   0x627,
                          0x661, 0xE01, 0x2460, 0x3042, 0x30FC, 0x4E00, 0xAC00, 0x1160, 0xFF11, 0x1D400, 0x20000}},
      // accents, vowels of Devanagari, drawn beside a letter too, and selectors
      {WordPart::mark, {0x300, 0x5B0, 0x903, 0x93E, 0x941, 0xE31, 0x20E3, 0x3099, 0xFE0F, 0xE0100}}};
  for (const auto& [part, codes] : known) {
    for (const char32_t code : codes) {
      INFO(code_text(code));
      CHECK(static_cast<int>(word_part(code)) == static_cast<int>(part));
    }
  }
}

TEST_CASE("unicode: the table matches its script's output for the same Unicode version", "[unicode]") {
  const std::string source = ABH_SOURCE_DIR, table = read_bytes(source + "/src/base/unicode_runs.inc");
  const std::string made = output_of("python3 " + source + "/tools/unicode_runs.py");
  const std::string version = "Unicode 14.0.0";
  REQUIRE(contains(table, version));
  if (made.find(version) == made.npos) {
    WARN("this Python knows another Unicode than the table: " << made.substr(0, made.find('\n')));
    return;
  }
  CHECK((made == table));
}
