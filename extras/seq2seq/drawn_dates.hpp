#pragma once

#include <cstdint>
#include <string>

namespace abh {

// A day between 1900-01-01 and 2099-12-31, as people write it and as machines do: "the 22nd of september 1999",
// "1999-09-22".
struct DrawnDate {
  std::string written, date;
};

// Days of the calendar, and whether one is kept for testing, as one in ten is: no training example has it.
inline constexpr std::uint32_t drawn_days = 73049;
bool is_test_day(std::uint32_t day);

// The same for a number everywhere; from first_test_example on with a test day (extras/seq2seq/dates.md).
DrawnDate drawn_date(std::uint32_t example);

inline constexpr int longest_written_date = 26, date_length = 10;

// The alphabets of dates.
extern const char* const characters_of_written_dates;
extern const char* const characters_of_dates;

}  // namespace abh
