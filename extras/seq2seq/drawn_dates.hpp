#pragma once

#include <cstdint>
#include <string>

namespace abh {

// A day between 1900-01-01 and 2099-12-31 in human and in ISO notation: "the 22nd of september 1999", "1999-09-22".
struct DrawnDate {
  std::string written, date;
};

// Number of days, and a test for held-out days: one day in ten is in no training example.
inline constexpr std::uint32_t drawn_days = 73049;
bool is_test_day(std::uint32_t day);

// The same on every machine; a test day from first_test_example on (extras/seq2seq/dates.md).
DrawnDate drawn_date(std::uint32_t example);

inline constexpr int longest_written_date = 26, date_length = 10;

// Alphabets of dates.
extern const char* const characters_of_written_dates;
extern const char* const characters_of_dates;

}  // namespace abh
