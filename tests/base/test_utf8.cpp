#include <string>
#include <string_view>

#include "base/utf8.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/invalid_utf8.hpp"

using namespace abh;
using namespace std::string_view_literals;

namespace {

std::string utf8_of(char32_t code) {
  std::string text;
  append_utf8(text, code);
  return text;
}

// true: no valid sequence starts at the front of `text`, and reading stays at that place.
bool is_refused(std::string_view text) {
  std::size_t position = 0;
  return next_code_point(text, position) == invalid_code_point && position == 0;
}

}  // namespace

TEST_CASE("utf8: known sequences, encoded and decoded", "[utf8]") {
  struct Known {
    char32_t code;
    std::string_view text;
  };
  // The first and the last code point of every length, the neighbours of the surrogates, and noncharacters, which are
  // valid.
  const Known known[] = {{0, "\0"sv},
                         {'a', "a"},
                         {0x7F, "\x7F"},
                         {0x80, "\xC2\x80"},
                         {0xE9, "\xC3\xA9"},
                         {0x7FF, "\xDF\xBF"},
                         {0x800, "\xE0\xA0\x80"},
                         {0x20AC, "\xE2\x82\xAC"},
                         {0xD7FF, "\xED\x9F\xBF"},
                         {0xE000, "\xEE\x80\x80"},
                         {0xFFFE, "\xEF\xBF\xBE"},
                         {0xFFFF, "\xEF\xBF\xBF"},
                         {0x10000, "\xF0\x90\x80\x80"},
                         {0x1F600, "\xF0\x9F\x98\x80"},
                         {0x10FFFF, "\xF4\x8F\xBF\xBF"}};
  for (const Known& each : known) {
    CAPTURE(static_cast<unsigned>(each.code));
    CHECK(utf8_of(each.code) == each.text);
    std::size_t position = 0;
    CHECK(next_code_point(each.text, position) == each.code);
    CHECK(position == each.text.size());
  }
}

TEST_CASE("utf8: every code point except surrogates survives a round trip", "[utf8]") {
  std::string text;
  for (char32_t code = 0; code < code_points; ++code) {
    if (code < 0xD800 || code > 0xDFFF) append_utf8(text, code);
  }
  std::size_t position = 0, wrong = 0;
  for (char32_t code = 0; code < code_points; ++code) {
    if (code < 0xD800 || code > 0xDFFF) wrong += next_code_point(text, position) != code;
  }
  CHECK(wrong == 0);
  CHECK(position == text.size());
}

TEST_CASE("utf8: invalid UTF-8 is refused", "[utf8]") {
  for (const std::string& text : invalid_utf8) {
    CAPTURE(text);
    CHECK(is_refused(text));
  }
}

TEST_CASE("utf8: code points are read one after the other", "[utf8]") {
  const std::string_view text = "a\xC3\xA9\xFFz";
  std::size_t position = 0;
  CHECK(next_code_point(text, position) == U'a');
  CHECK(next_code_point(text, position) == 0xE9);
  CHECK(position == 3);
  CHECK(next_code_point(text, position) == invalid_code_point);
  CHECK(position == 3);
  ++position;
  CHECK(next_code_point(text, position) == U'z');
  CHECK(position == text.size());
}
