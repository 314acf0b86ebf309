#include <clocale>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <locale>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/environment.hpp"
#include "tests/harness/folder.hpp"

using namespace abh;
using namespace std::string_view_literals;

namespace {

const double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();

// Texts and their numbers on every system.
using Numbers = std::vector<std::pair<std::string, double>>;
const Numbers numbers = {{"0", 0},      {"-0", -0.0},  {"1", 1},       {"-2.5", -2.5},    {".5", 0.5},
                         {"5.", 5},     {"007", 7},    {"1e3", 1e3},   {"1E+3", 1e3},     {"1e-3", 1e-3},
                         {"1e03", 1e3}, {"0.1", 0.1},  {"0e999", 0},   {"inf", infinity}, {"-INF", -infinity},
                         {"nan", nan},  {"-NaN", nan}, {"nan(1)", nan}};
const Numbers long_numbers = {{"-.5e-3", -0.0005},
                              {"0.000e-999", 0},
                              {"Infinity", infinity},
                              {"0.30000000000000004", 0.1 + 0.2},
                              {"9007199254740993", 9007199254740992.0},  // halfway: to even
                              {"9007199254740993.0000000000000000000000000000000000001", 9007199254740994.0},
                              {"123456789012345678901234567890", 1.2345678901234568e29},
                              // At the ends of the range.
                              {"1.7976931348623157e308", std::numeric_limits<double>::max()},
                              {"1.7976931348623158e308", std::numeric_limits<double>::max()},
                              {"2.2250738585072011e-308", 2.2250738585072011e-308},
                              {"1e-310", 1e-310},
                              {"-4.9406564584124654e-324", -std::numeric_limits<double>::denorm_min()},
                              {"2.4703282292062328e-324", std::numeric_limits<double>::denorm_min()}};

// Numbers beyond the range, and nonzero numbers that would become 0.
const std::vector<std::string_view> too_far = {"1e99999999999999999999", "-1e-99999999999999999999",
                                               "1.7976931348623159e308", "2.4703282292062327e-324"};
// Out of range; broken words; texts that strtod or another reader might accept.
const std::vector<std::string_view> no_numbers = {
    "1e999", "-1e999", "1e-400", "infinit", "nan(", "in",     "i",     "n",        "",      "-",    ".",
    "-.",    "e5",     ".e5",    "+1",      "-+1",  "--1",    "+inf",  " 1",       "1 ",    "\t1",  "\n1",
    "- 1",   "1e",     "1e+",    "1e 5",    "1..2", "1,5",    "1,000", "1'000",    "1_000", "00x1", "0x10",
    "0X1p3", "-0x1",   "0x",     "1p3",     "1f",   "1.5abc", "1\0"sv, "1\0002"sv, "\0"sv};

// The same number with the same sign; any NaN for another.
bool same(const std::optional<double>& got, double expected) {
  if (!got || std::isnan(expected)) return got && std::isnan(*got);
  return *got == expected && std::signbit(*got) == std::signbit(expected);
}

void check_texts() {
  for (const auto& all : {numbers, long_numbers}) {
    for (const auto& [text, expected] : all) {
      INFO('"' << text << '"');
      CHECK(same(from_text<double>(text), expected));
      CHECK(same(real_from_text(text), expected));
    }
  }
  for (const auto& texts : {too_far, no_numbers}) {
    for (const std::string_view text : texts) {
      INFO('"' << text << '"');
      CHECK_FALSE(from_text<double>(text).has_value());
      CHECK_FALSE(real_from_text(text).has_value());
    }
  }
}

}  // namespace

TEST_CASE("numbers as text: the same texts are accepted with every standard library", "[flags]") { check_texts(); }

namespace {

// Commas for points in every stream.
struct CommaPoint : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

// Sets a locale with decimal commas for the whole program, and restores the old locale at the end.
class Locale {
 public:
  // Sets the locale of the C library too, if the system has such a locale or the sources of one.
  Locale() : old_(std::locale::global(std::locale(std::locale::classic(), new CommaPoint))) {
    for (const char* name : {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "nl_NL.UTF-8"}) {
      if (std::setlocale(LC_ALL, name)) return;
    }
    path_.emplace("LOCPATH", folder_.path().c_str());
    const std::string name = "de_DE.UTF-8", command = "localedef -i de_DE -f UTF-8 '" + (folder_ / name) + "' 2>&1";
    if (std::system((command + " >/dev/null").c_str()) == 0) std::setlocale(LC_ALL, name.c_str());
  }
  ~Locale() {
    std::setlocale(LC_ALL, "C");
    std::locale::global(old_);
  }
  Locale(const Locale&) = delete;
  Locale& operator=(const Locale&) = delete;

 private:
  TestFolder folder_;
  std::optional<Environment> path_;
  std::locale old_;
};

}  // namespace

TEST_CASE("numbers as text: no locale changes the result", "[flags]") {
  const Locale comma;
  std::ostringstream stream;
  stream << 1234.5;
  REQUIRE(stream.str() == "1.234,5");
  if (std::strtod("2,5", nullptr) != 2.5) WARN("the C library has no locale with a comma here");
  check_texts();
  CHECK(to_text(1234.5) == "1234.5");
  CHECK(fixed_text(1234.5, 2) == "1234.50");
}
