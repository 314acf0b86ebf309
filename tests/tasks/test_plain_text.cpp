// Bytes that are no UTF-8 text are reported with their format; a byte order mark is dropped, with a note.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/crc32.hpp"
#include "base/utf8.hpp"
#include "tasks/plain_text.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/error_of.hpp"
#include "tests/harness/folder.hpp"

using namespace abh;
using namespace std::string_view_literals;
using namespace std::string_literals;

namespace {

// A text in another encoding.
std::string encoded(std::string_view text, std::size_t width, bool big) {
  std::string bytes;
  const auto append = [&](char32_t unit) {
    for (std::size_t i = 0; i < width; ++i) bytes += static_cast<char>(unit >> 8 * (big ? width - 1 - i : i) & 0xFF);
  };
  for (std::size_t position = 0; position < text.size();) {
    const char32_t code = next_code_point(text, position);
    if (width == 2 && code >= 0x10000) {
      append(0xD800 + ((code - 0x10000) >> 10));
      append(0xDC00 + ((code - 0x10000) & 0x3FF));
    } else {
      append(code);
    }
  }
  return bytes;
}

std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

const std::string english = "The quick brown fox\tjumps over the lazy dog: 0123456789!\r\n",
                  mixed = "H\u00f6her fl\u00f6gen \U0001f600 die \u201eV\u00f6gel\u201c.\n";
const std::string russian =
    "\u0421\u044a\u0435\u0448\u044c \u0436\u0435 \u0435\u0449\u0451 \u044d\u0442\u0438\u0445.\n";
const std::string chinese =
    "\u5929\u5730\u7384\u9ec3\uff0c\u5b87\u5b99\u6d2a\u8352\u3002\u4e00\u4e8c\u4e09\u56db\u4e94\u516d\u4e03\u516b\n";

std::string kind_of_file(std::string_view bytes) {
  const std::optional<ForeignBytes> foreign = foreign_bytes(bytes);
  return foreign ? foreign->what : "";
}

// The notes on a text that is prepared for a character tokenizer, else the error.
std::string said(std::string& text, const Tokenizer* tokenizer = nullptr, const std::string& path = "my text.txt") {
  std::string lines;
  const std::string error = error_of([&] {
    for (const std::string& note : prepare_text(text, path.empty() ? "prompt" : path, path, tokenizer))
      lines += note + "\n";
    return 0;
  });
  return error == "no error" ? lines : error;
}

}  // namespace

TEST_CASE("plain text: UTF-16 and UTF-32 are detected with and without a mark", "[plain_text]") {
  for (const std::string& text : {english, mixed, russian, chinese, std::string("ab"), std::string("\n")}) {
    for (const int times : {1, 50, 3000}) {
      const std::string whole = repeated(text, times);
      CHECK(kind_of_file(whole).empty());
      for (const std::size_t width : {2u, 4u}) {
        for (const bool big : {false, true}) {
          const std::string expected =
              std::string(width == 2 ? "UTF-16" : "UTF-32") + " text (" + (big ? "big" : "little") + "-endian)";
          CAPTURE(text, times, expected);
          const std::string bytes = encoded(whole, width, big), mark = encoded("\uFEFF", width, big);
          CHECK(kind_of_file(mark + bytes) == expected);
          CHECK(foreign_bytes(mark + bytes)->encoding == (width == 2 ? "UTF-16" : "UTF-32"));
          // Two letters or a line break alone are ambiguous.
          if (whole.size() > 10) {
            CHECK(kind_of_file(bytes) == expected);
            if (times > 1) CHECK(kind_of_file(bytes.substr(0, bytes.size() - 1)) == expected);  // cut short
            CHECK(foreign_bytes(bytes)->encoding ==
                  std::string(width == 2 ? "UTF-16" : "UTF-32") + (big ? "BE" : "LE"));
          }
        }
      }
    }
  }
  CHECK(kind_of_file("\xFF\xFE") == "UTF-16 text (little-endian)");
  CHECK(kind_of_file("\xFF\xFE\0\0a\0"sv) == "UTF-16 text (little-endian)");  // which begins with a NUL
  CHECK(kind_of_file("\xFE\xFF") == "UTF-16 text (big-endian)");
}

TEST_CASE("plain text: archives are detected by their first bytes", "[plain_text]") {
  std::string noise;
  for (unsigned i = 0; i < 100; ++i) noise += static_cast<char>(i * i * i * 7 % 251);
  const std::vector<std::pair<std::string_view, const char*>> known = {{"\x1F\x8B\x08\0"sv, "a gzip file"},
                                                                       {"PK\3\4\x14\0"sv, "a zip archive"},
                                                                       {"PK\5\6"sv, "a zip archive"},
                                                                       {"BZh91AY&SY"sv, "a bzip2 file"},
                                                                       {"BZh11AY&SY"sv, "a bzip2 file"},
                                                                       {"\3757zXZ\0"sv, "an xz file"},
                                                                       {"\x28\xB5\x2F\xFD"sv, "a zstd file"},
                                                                       {"\x04\x22\x4D\x18"sv, "an lz4 file"},
                                                                       {"7z\xBC\xAF\x27\x1C"sv, "a 7z archive"},
                                                                       {"Rar!\x1A\7\1\0"sv, "a rar archive"},
                                                                       {"\x1F\x9D\x90"sv, "a file of compress (.Z)"},
                                                                       {"PAR1"sv, "a Parquet file"},
                                                                       {"%PDF-1.7\n"sv, "a PDF file"}};
  for (const auto& [beginning, what] : known) {
    CAPTURE(what);
    CHECK(kind_of_file(std::string(beginning) + noise) == what);
    CHECK(kind_of_file("x" + std::string(beginning) + noise).empty());
  }
  std::string tar(1024, '\0');
  tar.replace(0, 5, "a.txt").replace(257, 5, "ustar");
  CHECK(kind_of_file(tar) == "a tar archive");
  // Words that a text may begin with.
  for (const char* text : {"PK", "PAR1 is a group", "%PDF-1.7 is how such files begin", "BZh91AY&SY", "7z", "Rar!"}) {
    CHECK(kind_of_file(text).empty());
  }
}

TEST_CASE("plain text: other unusual bytes are not mistaken for these formats", "[plain_text]") {
  CHECK(kind_of_file("").empty());
  CHECK(kind_of_file("a").empty());
  CHECK(kind_of_file("\0"sv).empty());
  CHECK(kind_of_file("hello\0"sv).empty());
  CHECK(kind_of_file(repeated("caf\xe9 au lait, gar\xe7on\n", 50)).empty());     // Latin-1
  CHECK(kind_of_file(repeated("\x8e\x84\x82\xcd\x94\x4c\n", 50)).empty());       // Shift JIS
  CHECK(kind_of_file(repeated(english, 50) + std::string(4096, '\0')).empty());  // a file that was cut short
  std::string noise, tokens;
  std::uint32_t state = 1;
  for (int i = 0; i < 20000; ++i) {
    state = state * 1664525u + 1013904223u;
    noise += static_cast<char>(state >> 24);
    // Two bytes each, most of them small, as other programs keep tokens.
    const std::uint32_t token = (state >> 16) % 7 < 3 ? (state >> 8) % 40 : (state >> 8) % 50257;
    tokens += static_cast<char>(token & 0xFF);
    tokens += static_cast<char>(token >> 8);
  }
  CHECK(kind_of_file(noise).empty());
  CHECK(kind_of_file(tokens).empty());
}

TEST_CASE("plain text: foreign encodings are refused, with a command to convert them", "[plain_text]") {
  std::string text = encoded(repeated(english, 9), 2, false);
  CHECK(said(text) ==
        "my text.txt: is UTF-16 text (little-endian), expected text in UTF-8; iconv -f UTF-16LE -t UTF-8 "
        "'my text.txt' >'my text.txt.utf8' converts it");
  CHECK(said(text, nullptr, "-x.txt").ends_with("iconv -f UTF-16LE -t UTF-8 ./-x.txt >./-x.txt.utf8 converts it"));
  CHECK(said(text, nullptr, "") ==
        "prompt: is UTF-16 text (little-endian), expected text in UTF-8; iconv -f UTF-16LE -t UTF-8 converts it");
  text = "\x1F\x8B\x08\0\0\0\0\0"sv;
  CHECK(said(text) == "my text.txt: is a gzip file, expected text in UTF-8; extract its text first");
  // Bytes are bytes.
  const Tokenizer bytes = Tokenizer::of_bytes();
  const std::string before = text;
  CHECK(said(text, &bytes) == "my text.txt: is a gzip file; its bytes are read unchanged\n");
  CHECK(text == before);
}

TEST_CASE("plain text: a mark before UTF-8 is dropped, unless the vocabulary has it", "[plain_text]") {
  const std::string dropped = "my text.txt: begins with a UTF-8 byte order mark, which is dropped\n";
  const std::string mark = "\uFEFF", marked = mark + "a" + mark + "b";
  const Tokenizer letters = Tokenizer::of_characters("abc", "x"),
                  with_mark = Tokenizer::of_characters(mark + "abc", "x"), bytes = Tokenizer::of_bytes();
  const Tokenizer* const none = nullptr;
  for (const auto& [tokenizer, drops] :
       {std::pair{none, true}, {&letters, true}, {&with_mark, false}, {&bytes, false}}) {
    std::string text = marked;
    CHECK(said(text, tokenizer) == (drops ? dropped : ""));
    CHECK(text == (drops ? marked.substr(mark.size()) : marked));
  }
  std::string alone = "\uFEFF", plain = "abc";
  CHECK(said(alone) == dropped);
  CHECK(alone.empty());
  CHECK(said(plain).empty());
  CHECK(plain == "abc");
  std::string half = "\xEF\xBB", twice = "\uFEFF\uFEFF";
  CHECK_FALSE(drop_mark(half, "x").has_value());
  CHECK(half == "\xEF\xBB");
  CHECK(drop_mark(twice, "x") == "x: begins with a UTF-8 byte order mark, which is dropped");
  CHECK(twice == "\uFEFF");
}

TEST_CASE("plain text: many NUL bytes give a note", "[plain_text]") {
  const auto word = [](std::size_t nuls, std::size_t others) {
    std::string text = std::string(others, 'a') + std::string(nuls, '\0');
    const std::string line = said(text);
    CHECK(text.size() == nuls + others);
    return line;
  };
  CHECK(word(0, 100).empty());
  CHECK(word(0, 0).empty());
  CHECK(word(1, 100) == "my text.txt: NUL bytes, 1 of 101 (1.0 %); texts contain none, check that this file is text\n");
  CHECK(word(9, 10'000).empty());
  CHECK(contains(word(10, 9'990), "(0.1 %)"));
  CHECK(word(999, 10'000'000).empty());
  CHECK_FALSE(word(1000, 10'000'000).empty());
  // With a mark, both notes are printed.
  std::string text = "\uFEFF" + "abc\0"s;
  CHECK(contains(said(text), "dropped\nmy text.txt: NUL bytes, 1 of 4 "));
}

TEST_CASE("plain text: a prepared file keeps the fingerprint of its bytes on disk", "[plain_text]") {
  const TestFolder folder;
  const std::string path = folder / "x.txt", bytes = "\uFEFF" + std::string("abc");
  write_bytes(path, bytes);
  const PlainText file = read_plain_text(path);
  CHECK(file.text == "abc");
  CHECK(file.fingerprint == fingerprint(bytes));
  CHECK((file.notes == std::vector<std::string>{path + ": begins with a UTF-8 byte order mark, which is dropped"}));
  write_bytes(path, "a\rb\r");
  CHECK(error_of([&] { return read_plain_text(path).text; }) ==
        path + ": its lines end in carriage returns alone, expected line feeds; tr '\\r' '\\n' <" + path + " >" + path +
            ".lines converts it");
  write_bytes(path, "a\rb\r\n");
  CHECK(read_plain_text(path).text == "a\rb\r\n");
  write_bytes(path, encoded(repeated(english, 9), 2, true));
  CHECK(contains(error_of([&] { return read_plain_text(path).text; }), "x.txt: is UTF-16 text (big-endian)"));
}
