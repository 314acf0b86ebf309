#include <clocale>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <locale>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "catch.hpp"
#include "environment.hpp"
#include "folder.hpp"

using namespace abh;

namespace {

const double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
const std::optional<double> none;

// What a text is as a number, on every system.
const std::vector<std::pair<std::string, std::optional<double>>> texts{
    {"0", 0.0},
    {"-0", -0.0},
    {"1", 1.0},
    {"-2.5", -2.5},
    {".5", 0.5},
    {"5.", 5.0},
    {"-.5e-3", -0.0005},
    {"007", 7.0},
    {"00x1", none},
    {"1e3", 1000.0},
    {"1E+3", 1000.0},
    {"1e-3", 0.001},
    {"1e03", 1000.0},
    {"0.1", 0.1},
    {"0.30000000000000004", 0.1 + 0.2},
    {"9007199254740993", 9007199254740992.0},  // halfway: to even
    {"9007199254740993.0000000000000000000000000000000000001", 9007199254740994.0},
    {"123456789012345678901234567890", 1.2345678901234568e29},
    // At the upper end of the range, and beyond.
    {"1.7976931348623157e308", std::numeric_limits<double>::max()},
    {"1.7976931348623158e308", std::numeric_limits<double>::max()},
    {"1.7976931348623159e308", none},
    {"1e999", none},
    {"-1e999", none},
    {"1e99999999999999999999", none},
    // At the lower end: subnormal numbers are numbers, but what is not 0 does not become 0.
    {"2.2250738585072011e-308", 2.2250738585072011e-308},
    {"1e-310", 1e-310},
    {"-4.9406564584124654e-324", -std::numeric_limits<double>::denorm_min()},
    {"2.4703282292062328e-324", std::numeric_limits<double>::denorm_min()},
    {"2.4703282292062327e-324", none},
    {"1e-400", none},
    {"-1e-99999999999999999999", none},
    {"0e999", 0.0},
    {"0.000e-999", 0.0},
    // Words.
    {"inf", infinity},
    {"-INF", -infinity},
    {"Infinity", infinity},
    {"infinit", none},
    {"nan", nan},
    {"-NaN", nan},
    {"nan(1)", nan},
    {"nan(", none},
    {"in", none},
    {"i", none},
    {"n", none},
    // What strtod, or a reader of another kind, might take.
    {"", none},
    {"-", none},
    {".", none},
    {"-.", none},
    {"e5", none},
    {".e5", none},
    {"+1", none},
    {"-+1", none},
    {"--1", none},
    {"+inf", none},
    {" 1", none},
    {"1 ", none},
    {"\t1", none},
    {"\n1", none},
    {"- 1", none},
    {"1e", none},
    {"1e+", none},
    {"1e 5", none},
    {"1..2", none},
    {"1,5", none},
    {"1,000", none},
    {"1'000", none},
    {"1_000", none},
    {"0x10", none},
    {"0X1p3", none},
    {"-0x1", none},
    {"0x", none},
    {"1p3", none},
    {"1f", none},
    {"1.5abc", none},
    {std::string("1\0", 2), none},
    {std::string("1\0002", 3), none},
    {std::string("\0", 1), none},
};

// The same number with the same sign; any NaN for another, nothing for nothing.
bool same(const std::optional<double>& got, const std::optional<double>& expected) {
  if (!got || !expected) return !got && !expected;
  if (std::isnan(*expected)) return std::isnan(*got);
  return *got == *expected && std::signbit(*got) == std::signbit(*expected);
}

void check_texts() {
  for (const auto& [text, expected] : texts) {
    INFO('"' << text << '"');
    CHECK(same(from_text<double>(text), expected));
    CHECK(same(real_from_text(text), expected));
  }
}

}  // namespace

TEST_CASE("numbers as text: the same texts are numbers with every standard library", "[flags]") { check_texts(); }

namespace {

// Commas for points in every stream.
struct CommaPoint : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

// A locale with commas for the whole program; at the end it is as it was.
class Locale {
 public:
  // Of the C library, where the system has such a locale or the sources of one.
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

TEST_CASE("numbers as text: no locale changes them", "[flags]") {
  const Locale comma;
  std::ostringstream stream;
  stream << 1234.5;
  REQUIRE(stream.str() == "1.234,5");
  if (std::strtod("2,5", nullptr) != 2.5) WARN("the C library has no locale with a comma here");
  check_texts();
  CHECK(to_text(1234.5) == "1234.5");
  CHECK(fixed_text(1234.5, 2) == "1234.50");
}
