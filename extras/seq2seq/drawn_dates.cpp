#include "extras/seq2seq/drawn_dates.hpp"

#include "base/random.hpp"
#include "extras/answers/answers.hpp"

namespace abh {

const char* const characters_of_written_dates = " ,./0123456789abcdefghijklmnopqrstuvwxyz";
const char* const characters_of_dates = "-0123456789";

namespace {

constexpr const char* months[] = {"january", "february", "march",     "april",   "may",      "june",
                                  "july",    "august",   "september", "october", "november", "december"};
constexpr std::uint32_t whole_example = 0xFFFFFFFF;  // step whose words select the test days

struct Calendar {
  int year = 1900, month = 1, day = 1;
};

int days_of(int year, int month) {
  if (month == 2) return year % 4 == 0 && year != 1900 ? 29 : 28;
  return month == 4 || month == 6 || month == 9 || month == 11 ? 30 : 31;
}

// Day 0 is 1900-01-01.
Calendar calendar(std::uint32_t day) {
  Calendar at;
  int left = static_cast<int>(day);
  while (left >= days_of(at.year, at.month)) {
    left -= days_of(at.year, at.month);
    at.year += at.month / 12;
    at.month = at.month % 12 + 1;
  }
  at.day = 1 + left;
  return at;
}

std::string two_digits(int number) { return (number < 10 ? "0" : "") + std::to_string(number); }

std::string ordinal(int number) {
  const char* const endings[] = {"th", "st", "nd", "rd"};
  const bool is_teen = number / 10 == 1;
  return std::to_string(number) + endings[!is_teen && number % 10 < 4 ? number % 10 : 0];
}

std::string written(const Calendar& at, std::uint32_t form) {
  const std::string d = std::to_string(at.day), y = std::to_string(at.year), month = months[at.month - 1];
  switch (form) {
    case 0:
      return d + " " + month + " " + y;
    case 1:
      return month + " " + d + ", " + y;
    case 2:
      return d + " " + month.substr(0, 3) + " " + y;
    case 3:
      return month.substr(0, 3) + " " + d + ", " + y;
    case 4:
      return "the " + ordinal(at.day) + " of " + month + " " + y;
    case 5:
      return month + " the " + ordinal(at.day) + ", " + y;
    case 6:
      return d + "." + std::to_string(at.month) + "." + y;
    default:
      return two_digits(at.month) + "/" + two_digits(at.day) + "/" + y;
  }
}

}  // namespace

bool is_test_day(std::uint32_t day) {
  return philox_word(0, day, whole_example, sites::dates) < 429496730;  // a tenth of all words
}

DrawnDate drawn_date(std::uint32_t example) {
  std::uint64_t words = 0;
  const auto below = [&](std::uint32_t n) {
    return static_cast<std::uint32_t>((std::uint64_t{philox_word(0, words++, example, sites::dates)} * n) >> 32);
  };
  const bool tests = example >= first_test_example;
  std::uint32_t day = below(drawn_days);
  while (is_test_day(day) != tests) day = below(drawn_days);
  const Calendar at = calendar(day);
  return {.written = written(at, below(8)),
          .date = std::to_string(at.year) + "-" + two_digits(at.month) + "-" + two_digits(at.day)};
}

}  // namespace abh
