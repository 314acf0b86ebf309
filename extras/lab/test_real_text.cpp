// The texts of numbers on the page (extras/lab/real_text.cpp, with another library) equal the texts in the programs.

#include <bit>
#include <cmath>
#include <cstdint>
#include <string>

#include "base/random.hpp"
#include "base/text.hpp"
#include "tests/harness/catch.hpp"

#define to_text page_to_text
#define fixed_text page_fixed_text
#define short_number page_short_number
#include "extras/lab/real_text.cpp"
#undef to_text
#undef fixed_text
#undef short_number

namespace abh {
namespace {

template <class Real>
std::uint64_t others(Real value) {
  return page_to_text(value) != to_text(value);
}

}  // namespace

TEST_CASE("numbers as text in a page equal those of the programs", "[text]") {
  std::uint64_t different = 0;
  for (std::uint64_t i = 0; i < 20000; ++i) {
    const std::uint32_t word = philox_word(1, 2 * i, 0, 0), more = philox_word(1, 2 * i + 1, 0, 0);
    const std::uint64_t bits = std::uint64_t{word} << 32 | more;
    different += others(std::bit_cast<double>(bits)) + others(std::bit_cast<float>(word));
    different += others(static_cast<double>(bits >> (word % 64))) + others(static_cast<double>(word % 1000000) / 1e4);
    const double value = std::ldexp(static_cast<double>(word), static_cast<int>(more % 80) - 60);
    for (const int digits : {0, 1, 2, 4}) different += page_fixed_text(value, digits) != fixed_text(value, digits);
    for (const int digits : {3, 4}) different += page_short_number(value, digits) != short_number(value, digits);
  }
  for (int exponent = -1074; exponent < 1024; ++exponent) different += others(std::ldexp(1.0, exponent));
  for (int exponent = -149; exponent < 128; ++exponent) different += others(std::ldexp(1.0f, exponent));
  for (const double value : {0.0, -0.0, 0.1, 5e-4, 1e22, 1e21, 123456.0, HUGE_VAL, -HUGE_VAL})
    different += others(value);
  CHECK(different == 0);
}

TEST_CASE("the words of a text", "[text]") {
  CHECK(words_in("").empty());
  CHECK(words_in(" \t\n").empty());
  CHECK(words_in("one") == std::vector<std::string>{"one"});
  CHECK(words_in("  3 1\t2\n") == std::vector<std::string>{"3", "1", "2"});
}

}  // namespace abh
