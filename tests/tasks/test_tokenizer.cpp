#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "tasks/tokenizer.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/error_of.hpp"
#include "tests/harness/invalid_utf8.hpp"

using namespace abh;

namespace {

std::string decode_all(const Tokenizer& tokenizer, const std::vector<Token>& ids) {
  std::string text;
  for (const Token id : ids) text += tokenizer.decode(id);
  return text;
}

}  // namespace

TEST_CASE("a char vocabulary consists of the sorted distinct code points", "[tokenizer]") {
  const Tokenizer tokenizer = Tokenizer::of_characters("b\u00e9a\U0001f600ab\n", "x.txt");
  CHECK(tokenizer.kind() == "char");
  CHECK(tokenizer.size() == 5);
  CHECK(tokenizer.vocabulary() == "\nab\xC3\xA9\xF0\x9F\x98\x80");
  CHECK(tokenizer.encode("\xF0\x9F\x98\x80\nab\xC3\xA9", "prompt") == std::vector<Token>{4, 0, 1, 2, 3});
  CHECK(tokenizer.decode(0) == "\n");
  CHECK(tokenizer.decode(3) == "\xC3\xA9");
  CHECK(tokenizer.encode("", "prompt").empty());
}

TEST_CASE("a byte tokenizer accepts every byte", "[tokenizer]") {
  const Tokenizer tokenizer = Tokenizer::of_bytes();
  CHECK(tokenizer.kind() == "byte");
  CHECK(tokenizer.size() == 256);
  CHECK(tokenizer.vocabulary().empty());
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  const std::vector<Token> ids = tokenizer.encode(all, "prompt");
  REQUIRE(ids.size() == 256);
  for (Token id = 0; id < 256; ++id) CHECK(ids[static_cast<std::size_t>(id)] == id);
  CHECK(decode_all(tokenizer, ids) == all);
}

TEST_CASE("UTF-8 is validated as in the standard", "[tokenizer]") {
  // The first and the last sequence of every length, and both edges of the surrogate gap.
  const std::vector<std::string> valid = {std::string(1, '\0'), "\x7F",         "\xC2\x80",         "\xDF\xBF",
                                          "\xE0\xA0\x80",       "\xED\x9F\xBF", "\xEE\x80\x80",     "\xEF\xBF\xBD",
                                          "\xEF\xBF\xBF",       "\xEF\xBB\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"};
  for (const std::string& text : valid) {
    const Tokenizer tokenizer = Tokenizer::of_characters(text, "x.txt");
    CHECK(tokenizer.size() == 1);
    CHECK(tokenizer.decode(0) == text);
    CHECK(tokenizer.encode(text + text, "prompt") == std::vector<Token>{0, 0});
  }

  for (const std::string& bad : invalid_utf8) {
    CAPTURE(bad);
    for (const std::string& tail : {std::string(), std::string("zz\n")}) {
      const std::string text = std::string("ab\ncd\n") + "e" + bad + tail;
      const std::string message = error_of([&] { return Tokenizer::of_characters(text, "data/x.txt"); });
      CHECK(contains(message, "data/x.txt: "));
      CHECK(contains(message, "byte offset 7 "));
      CHECK(contains(message, "line 3"));
      CHECK(contains(message, "--tokenizer byte"));
      CHECK_FALSE(contains(message, "\n"));
    }
    // The same text is fine as bytes.
    CHECK(Tokenizer::of_bytes().encode(bad, "x").size() == bad.size());
  }
}

TEST_CASE("nothing is read past the end of a text", "[tokenizer]") {
  // Views that end inside a sequence whose other bytes follow in memory.
  for (const std::string_view whole : {"\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"}) {
    for (std::size_t size = 1; size < whole.size(); ++size) {
      const std::string message = error_of([&] { return Tokenizer::of_characters(whole.substr(0, size), "x.txt"); });
      CHECK(contains(message, "byte offset 0 "));
    }
  }
}

TEST_CASE("the offset of invalid UTF-8 counts bytes, not characters", "[tokenizer]") {
  const auto build = [] { return Tokenizer::of_characters("\xC3\xA9\n\xC3\xA9\xFF", "x.txt"); };
  const std::string message = error_of(build);
  CHECK(contains(message, "byte offset 5 "));
  CHECK(contains(message, "line 2"));
  CHECK(contains(message, "0xFF"));
}

TEST_CASE("an empty text has no vocabulary", "[tokenizer]") {
  CHECK(contains(error_of([] { return Tokenizer::of_characters("", "x.txt"); }), "x.txt: is empty"));
}

TEST_CASE("a character outside the vocabulary is named", "[tokenizer]") {
  const Tokenizer tokenizer = Tokenizer::of_characters("ab\xC3\xA9", "x.txt");
  const auto encode = [&](const std::string& text) {
    return error_of([&] { return tokenizer.encode(text, "prompt"); });
  };
  CHECK(encode("\u00e9ab") == "no error");
  const std::string message = encode("\u00e9a\u00fc");
  CHECK(contains(message, "prompt: character 3, '\xC3\xBC' (U+00FC)"));
  CHECK(contains(message, "3 characters"));
  CHECK(contains(encode("Z"), "character 1, 'Z' (U+005A)"));
  CHECK(contains(encode("a\xF0\x9F\x98\x80"), "(U+1F600)"));
  // A character that would break the one line of a message is shown only by its code.
  for (const std::string hidden : {"\n", "\x1B", "\x7F", "\xC2\x85", "\xE2\x80\xA8", "\xE2\x80\xAE", "\xEF\xBB\xBF",
                                   // an accent, a Thai vowel, a joiner, a tag, a selector; private, not assigned
                                   "\u0301", "\u0e34", "\u200d", "\U000e0041", "\ufe0f", "\ue000", "\u0378"}) {
    const std::string shown = encode(hidden);
    CHECK(contains(shown, "character 1, U+"));
    CHECK_FALSE(contains(shown, hidden));
  }
  // Below, between and above the vocabulary.
  CHECK(!encode("A").empty());
  CHECK(!encode("c").empty());
  CHECK(!encode("\xF4\x8F\xBF\xBF").empty());
  // A prompt that is not UTF-8.
  CHECK(contains(encode("a\xFF"), "prompt: invalid UTF-8 at byte offset 1"));
}

TEST_CASE("decode refuses an id outside the vocabulary", "[tokenizer]") {
  const Tokenizer characters = Tokenizer::of_characters("ab", "x.txt");
  CHECK(contains(error_of([&] { return characters.decode(2); }), "token id 2"));
  CHECK(contains(error_of([&] { return characters.decode(-1); }), "token id -1"));
  CHECK(contains(error_of([&] { return Tokenizer::of_bytes().decode(256); }), "token id 256"));
}

TEST_CASE("a tokenizer is restored from its metadata", "[tokenizer]") {
  std::string text = "the quick\nbrown fox \xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80";
  text += '\0';
  const Tokenizer characters = Tokenizer::of_characters(text, "x.txt");
  for (const Tokenizer& original : {characters, Tokenizer::of_bytes()}) {
    const Tokenizer copy = Tokenizer::from_metadata(original.kind(), original.vocabulary(), "model");
    CHECK(copy.kind() == original.kind());
    CHECK(copy.size() == original.size());
    CHECK(copy.vocabulary() == original.vocabulary());
    CHECK(copy.encode(text, "x") == original.encode(text, "x"));
    CHECK(decode_all(copy, copy.encode(text, "x")) == text);
  }
}

TEST_CASE("invalid metadata are refused, not repaired", "[tokenizer]") {
  const auto load = [](const std::string& kind, const std::string& vocabulary) {
    return error_of([&] { return Tokenizer::from_metadata(kind, vocabulary, "model.safetensors"); });
  };
  CHECK(load("char", "abc") == "no error");
  CHECK(load("byte", "") == "no error");
  using Case = std::array<std::string, 3>;
  for (const auto& [kind, vocabulary, part] :
       {Case{"word", "abc", "'word'"}, Case{"", "abc", "''"}, Case{"char", "", "empty"},
        Case{"char", "abb", "ascending"}, Case{"char", "acb", "'b' (U+0062)"}, Case{"char", "ab\xFF", "offset 2"},
        Case{"char", "ab\xC3", "offset 2"}, Case{"byte", "abc", "byte"}}) {
    const std::string message = load(kind, vocabulary);
    CHECK(contains(message, "model.safetensors: "));
    CHECK(contains(message, part));
  }
}

TEST_CASE("a vocabulary is extended by a text, and old ids are mapped", "[tokenizer]") {
  const Tokenizer old = Tokenizer::of_characters("bd\xC3\xA9", "x.txt");
  const Tokenizer both = old.extended_by("abc\xE2\x82\xAC", "y.txt");
  CHECK(both.vocabulary() == "abcd\xC3\xA9\xE2\x82\xAC");
  CHECK(both.ids_in(old) == std::vector<Token>{-1, 0, -1, 1, 2, -1});
  CHECK(old.ids_in(both) == std::vector<Token>{1, 3, 4});
  CHECK(both.unit() == "character");
  CHECK(Tokenizer::of_bytes().unit() == "byte");
  CHECK(both.described(0) == "'a' (U+0061)");
  CHECK(both.described(5) == "'\xE2\x82\xAC' (U+20AC)");
  CHECK(old.extended_by("\n", "y.txt").described(0) == "U+000A");
  const Tokenizer bytes = Tokenizer::of_bytes();
  CHECK(bytes.extended_by("a\xFF", "y.txt").kind() == "byte");
  CHECK(bytes.ids_in(bytes).size() == 256);
  CHECK(bytes.ids_in(bytes)[200] == 200);
  CHECK(error_of([&] { return old.extended_by("a\xFF", "y.txt"); }) ==
        "y.txt: invalid UTF-8 at byte offset 1 (line 1, byte 0xFF)");
}
