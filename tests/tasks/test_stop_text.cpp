#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>

#include "tasks/text/stop_text.hpp"
#include "tests/harness/catch.hpp"

using namespace abh;

namespace {

// The text that passes the filter when it arrives in pieces of up to `longest` bytes, cut at random.
std::string shown(const std::string& stop, std::string_view text, std::size_t longest, std::mt19937& random) {
  StopText until(stop);
  std::string out;
  while (!text.empty() && !until.found()) {
    const std::size_t size = std::min<std::size_t>(random() % (longest + 1), text.size());
    out += until.add(text.substr(0, size));
    // Output is delayed only by text that may become the stop text.
    CHECK(until.held_back().size() < std::max<std::size_t>(stop.size(), 1));
    text.remove_prefix(size);
  }
  return out + std::string(until.held_back());
}

}  // namespace

TEST_CASE("stop text: text before the stop text passes, text after it does not", "[stop_text]") {
  std::mt19937 random(1);
  for (int turn = 0; turn < 3000; ++turn) {
    // Few letters, so that beginnings of the stop text are frequent and nested.
    const std::uint_fast32_t letters = 1 + random() % 3;
    const auto word = [&](std::size_t size) {
      std::string text;
      while (text.size() < size) text += static_cast<char>('a' + random() % letters);
      return text;
    };
    std::string stop = word(1 + random() % 6), text = word(random() % 40);
    if (turn % 2 == 1) {  // beginnings of itself in the stop text, and many of them in front of it
      stop = word(1);
      for (const std::size_t size = 1 + random() % 10; stop.size() < size;) {
        stop += stop.substr(0, random() % (stop.size() + 1)) + word(1);
      }
      text.clear();
      for (auto parts = random() % 12; parts > 0; --parts) {
        text += stop.substr(0, random() % (stop.size() + 1)) + word(random() % 4 == 0 ? 1 : 0);
      }
      text += stop;
    }
    INFO("\"" << stop << "\" in \"" << text << "\"");
    const std::string expected = text.substr(0, text.find(stop));
    for (const std::size_t longest : {1u, 3u, 50u}) REQUIRE(shown(stop, text, longest, random) == expected);
  }
}

TEST_CASE("stop text: a found stop text stays found, an empty one is never found", "[stop_text]") {
  StopText until("aab");
  CHECK(until.add("xaa") == "x");
  CHECK(until.held_back() == "aa");
  CHECK(until.add("a") == "a");
  CHECK_FALSE(until.found());
  CHECK(until.add("bcd") == "");
  CHECK(until.found());
  CHECK(until.held_back().empty());
  CHECK(until.add("more") == "");
  StopText never("");
  CHECK(never.add("anything") == "anything");
  CHECK_FALSE(never.found());
  CHECK(never.held_back().empty());
}

TEST_CASE("stop text: bytes of one character do not match parts of another", "[stop_text]") {
  StopText until("\u00e9!");  // two bytes; è has the same first byte
  std::string out;
  for (const char byte : std::string("\u00e8\u00e9\u00e9?\u00e9!x")) out += until.add({&byte, 1});
  CHECK(out == "\u00e8\u00e9\u00e9?");
  CHECK(until.found());
}
