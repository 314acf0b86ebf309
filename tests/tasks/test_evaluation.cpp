// The loss of a whole text against one token after the other, and its display by character.

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "device/choice.hpp"
#include "tasks/text/by_character.hpp"
#include "tasks/text/evaluation.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/error_of.hpp"
#include "tests/harness/evaluation_case.hpp"
#include "tests/harness/model_case.hpp"
#include "tests/harness/near.hpp"
#include "tests/harness/settings.hpp"

using namespace abh;

namespace {

// Rows of characters, and their display after the legend.
struct ShownRows {
  explicit ShownRows(bool colours) : rows(colours, out), legend(out.str()) { out.str(""); }
  void add(const std::vector<std::string>& characters, std::optional<double> nats, double more = 0) {
    for (const std::string& character : characters) {
      rows.add(character, nats);
      if (nats) *nats += more;
    }
  }
  std::string finished() {
    rows.finish();
    return out.str();
  }

  std::ostringstream out;
  ByCharacter rows;
  std::string legend;
};

double sum_of(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

}  // namespace

TEST_CASE("evaluation: each target once, in consecutive windows, for any batch size", "[evaluation][heavy]") {
  const std::vector<std::string> letters = {"a", "b", "\n", "\xc3\xa9", "\xe2\x82\xac"};  // é and €
  for (const std::string& positions : all_positions()) {
    // Windows and batches that end with the text, and others; 1024 tokens are a batch.
    for (const auto& [size, C] : std::vector<std::pair<Index, Index>>{
             {2, 1}, {2, 8}, {9, 8}, {10, 8}, {300, 7}, {1025, 8}, {1026, 8}, {4500, 5}, {300, 40}, {5000, 3000}}) {
      if ((positions == "learned" && C > 8) || (positions != "none" && C > 1000)) continue;
      CAPTURE(positions, size, C);
      const std::string text = mixed_text(letters, size);
      const TextModel model = some_model(Tokenizer::of_characters("ab\n\xc3\xa9\xe2\x82\xac", "x"), positions);
      const std::vector<double> expected = stepwise(model, text, C);
      const auto& [evaluation, shown] = evaluate(model, text, {C});
      CHECK(evaluation.characters == size - 1);
      CHECK(evaluation.bytes == static_cast<Index>(text.size() - shown.characters[0].size()));
      CHECK_FALSE(!(std::abs(evaluation.nats - sum_of(expected)) <= 1e-5 * sum_of(expected)));
      REQUIRE(shown.nats.size() == static_cast<std::size_t>(size));
      CHECK_FALSE(shown.nats[0].has_value());
      std::string whole = shown.characters[0];
      for (std::size_t i = 1; i < shown.nats.size(); ++i) whole += shown.characters[i];
      CHECK(whole == text);
      CHECK_FALSE(!(distance(shown.of_targets(), expected) <= 1e-4));
    }
  }
}

TEST_CASE("evaluation: bytes are joined to characters if the text is UTF-8", "[evaluation]") {
  const TextModel model = some_model(Tokenizer::of_bytes());
  const std::string text = "\xc3\xa9 costs 3 \xe2\x82\xac.\n";
  const std::vector<double> expected = stepwise(model, text, 8);
  const auto& [evaluation, shown] = evaluate(model, text, {8});
  CHECK(evaluation.bytes == 15);
  CHECK(evaluation.characters == 12);
  CHECK_FALSE(!(std::abs(evaluation.nats - sum_of(expected)) <= 1e-5 * sum_of(expected)));
  REQUIRE(shown.nats.size() == 13);
  CHECK(shown.characters[10] == "\xe2\x82\xac");
  // The first byte is no target, the second one is.
  CHECK_FALSE(!(std::abs(shown.nats[0].value() - expected[0]) <= 1e-4));
  CHECK_FALSE(!(std::abs(shown.nats[10].value() - expected[10] - expected[11] - expected[12]) <= 1e-4));

  const auto& [bytes, single] = evaluate(model, "a\xff\xc3\x62", {8});
  CHECK(bytes.bytes == 3);
  CHECK_FALSE(bytes.characters.has_value());
  CHECK(single.characters == std::vector<std::string>{"a", "\xff", "\xc3", "b"});
  // One character, with one byte as a target: a division by zero must be avoided.
  const auto& [rest, one] = evaluate(model, "\xc3\xa9", {8});
  CHECK(rest.bytes == 1);
  CHECK_FALSE(rest.characters.has_value());
  CHECK(one.characters.size() == 1);
}

TEST_CASE("evaluation: unusable input is refused", "[evaluation]") {
  TextModel model = some_model(Tokenizer::of_characters("ab\n", "x"));
  const auto error = [&](const std::string& text, Index C) {
    return error_of([&] { return evaluate(model, text, {C}); });
  };
  CHECK(error("ab", 8) == "no error");
  CHECK(error("a", 8) == "text.txt: too short: 1 character, expected 2 at least");
  CHECK(error("abc", 8).find("text.txt: character 3, 'c' (U+0063)") == 0);
  CHECK(error(std::string(5000, 'a') + "\xff", 8).find("text.txt: invalid UTF-8 at byte offset 5000") == 0);
  CHECK(error("ab", 9) == "--context: expected at most 8, the rows of this model's position table, found 9");
  model.weights[0] = HUGE_VALF;
  CHECK(contains(error("\na", 8), "not finite"));
  model.config.causal = false;
  CHECK(contains(error("ab", 8), "no causal mask"));
}

TEST_CASE("evaluation: the last line has its documented form", "[evaluation]") {
  CHECK(evaluation_line("hamlet", {.nats = 300, .characters = 200, .bytes = 250}) ==
        "evaluate: hamlet, 200 characters, 1.5000 nats/char (2.1640 bits/char), 1.2000 nats/byte (1.7312 bits/byte)");
  CHECK(evaluation_line("a\nb", {.nats = 300, .characters = std::nullopt, .bytes = 200}) ==
        "evaluate: a b, 200 bytes, 1.5000 nats/byte (2.1640 bits/byte)");
}

TEST_CASE("by character: without colours the whole nats stand below the text", "[evaluation]") {
  ShownRows shown(false);
  shown.add({"T"}, std::nullopt);
  shown.add({"o", "\t", "\xc3\xa9", "\n", "\xff", "\xe2\x80\x8b", "\x7f"}, 0.99, 1.5);
  shown.add({"x"}, 10);
  CHECK(shown.legend == "nats of each character, under it: . under 1, 1 to 9, + from 10\n\n");
  shown.rows.finish();
  CHECK(shown.finished() ==
        "To\u2409\u00e9\u21b5\n"
        " .235\n"
        "\ufffd\u2421x\n"
        "69+\n");
  REQUIRE(shown.rows.rows().size() == 2);
  CHECK(shown.rows.rows()[0].size() == 5);
  CHECK(shown.rows.rows()[1][2].shown == "x");
}

TEST_CASE("by character: digits stand below their characters, which may have any number of columns", "[evaluation]") {
  // A mark where nothing stands before it; wide ones; an accent, a Thai vowel, a selector, a joiner, a tag, a
  // direction; what is private or not assigned.
  ShownRows shown(false);
  shown.add({"\u0301", "\u65e5", "a", "\u0301", "\U0001f600", "\u0e01", "\u0e34", "\u2764", "\ufe0f"}, 1, 1);
  shown.add({"\u200d", "\U000e0041", "b", "\u202e", "\ue000", "\u0378", "\u2028", "\n"}, 0);
  CHECK(shown.out.str() ==
        "\u65e5a\u0301\U0001f600\u0e01\u0e34\u2764b\ufffd\ufffd\ufffd\u21b5\n"
        "2 35 68.....\n");
  REQUIRE(shown.rows.rows().size() == 1);
  const HeatRow& row = shown.rows.rows()[0];
  CHECK(row[0].columns == 2);
  CHECK(row[1].columns == 1);
  CHECK(row[1].shown == "a\u0301");
  REQUIRE(row[1].marks.size() == 1);
  CHECK(row[1].marks[0].first == "U+0301");
  CHECK(row[1].marks[0].second == 4);
  CHECK(row[4].shown == "\u2764");
  CHECK(row[4].marks.size() == 3);
}

TEST_CASE("by character: wide characters are not split at the end of a row, marks stay with their characters",
          "[evaluation]") {
  ShownRows shown(false);
  shown.add(std::vector<std::string>(79, "a"), 1);
  shown.add({"\u65e5"}, 2);
  shown.add(std::vector<std::string>(78, "b"), 3);
  shown.add({"\u0301", "c"}, 4, 1);
  CHECK(shown.finished() == std::string(79, 'a') + "\n" + std::string(79, '1') + "\n\u65e5" + std::string(78, 'b') +
                                "\u0301\n" + "2 " + std::string(78, '3') + "\nc\n5\n");
  // A million marks on one letter are no writing.
  ShownRows heaped(false);
  heaped.add({"a"}, 1);
  heaped.add(std::vector<std::string>(1000, "\u0301"), 1);
  CHECK(heaped.finished().size() < 100);
  CHECK(heaped.rows.rows()[0][0].marks.size() == 30);
}

TEST_CASE("by character: with colours a mark has the background of its character", "[evaluation]") {
  ShownRows shown(true);
  shown.add({"a"}, 0.5);
  shown.add({"\u0301", "\u65e5"}, 7);
  CHECK(shown.finished() == "a\u0301\x1b[38;5;16;48;5;203m\u65e5\x1b[0m\n");
}

TEST_CASE("by character: colours increase with the loss and end with the row", "[evaluation]") {
  ShownRows shown(true);
  for (const char* name : {"under 1", "1 to 2", "4 to 5", "from 5"}) CHECK(contains(shown.legend, name));
  shown.add({"a"}, std::nullopt);
  shown.add({"b", "c"}, 0.5, 1);
  shown.add({"d"}, 1.6);
  shown.add({"e"}, 0.1);
  shown.add({"\n"}, 77);
  CHECK(shown.out.str() == "ab\x1b[38;5;16;48;5;229mcd\x1b[0me\x1b[38;5;16;48;5;203m\u21b5\x1b[0m\n");
}

TEST_CASE("by character: rows end at 80 columns, and a picture's text at 4,000", "[evaluation]") {
  ShownRows shown(false);
  shown.add(std::vector<std::string>(5000, "a"), 1);
  const std::string text = shown.finished();
  CHECK(contains(text, std::string(80, 'a') + "\n" + std::string(80, '1') + "\n"));
  CHECK_FALSE(contains(text, std::string(81, 'a')));
  CHECK(shown.rows.rows().size() == 50);
  CHECK(std::count(text.begin(), text.end(), 'a') == 5000);
}
