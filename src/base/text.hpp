#pragma once

#include <charconv>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <vector>

namespace abh {

// The shortest text that reads back as the same number, in no locale (real_text.cpp).
std::string to_text(double value);
std::string to_text(float value);
template <class Number>
requires std::is_integral_v<Number> std::string to_text(Number value) {
  char buffer[32];
  return std::string(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
}

// A number with so many digits after its point, in no locale.
std::string fixed_text(double value, int decimals);
// A number with so many digits that count: "0.0214", "1.5e-07".
std::string short_number(double value, int digits = 3);

// The text with a to z in the place of A to Z.
std::string small_letters(std::string text);

// The text without white space at both ends, that of other languages (U+00A0, U+3000) included.
std::string_view trimmed(std::string_view text);

// The words of a text, which white space parts.
std::vector<std::string> words_in(std::string_view text);

// from_text<double> where std::from_chars reads whole numbers only, as that of libc++: the same texts, the same
// numbers.
std::optional<double> real_from_text(std::string_view text);

// The whole text as one number, nothing where it is not one. std::from_chars takes no white space, no plus and no
// locale, and detects overflow.
template <class Number>
std::optional<Number> from_text(std::string_view text) {
#if defined(__cpp_lib_to_chars)
  constexpr bool by_library = true;
#else
  constexpr bool by_library = std::is_integral_v<Number>;
#endif
  if constexpr (by_library) {
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return value;
  } else {
    return real_from_text(text);
  }
}

// Edits between two names: insert, drop or replace a character, or swap two neighbours (optimal string alignment).
// Takes time and memory of the product of their lengths.
std::size_t edit_distance(std::string_view from, std::string_view to);

// The text with a space for everything that a line does not survive, control characters, separators of lines and turns
// of direction, and cut at 4,000 bytes: safe to print as part of one line.
std::string one_line(std::string text);

// A text of a file as a message quotes it: in quotes, on one line, cut at 80 bytes.
std::string in_quotes(std::string_view text);

// The same characters as \u001B, and nothing cut: for a line that shows text of a file.
std::string escaped_line(std::string_view text);

// Control characters alone so, but for those that are kept: what a terminal would obey.
std::string escaped_controls(std::string_view text, std::string_view kept = "");

// A text, a path say, as one word of a shell's command line: as it is where that works, else in quotes. It stays on one
// line, and what cannot be seen stands in it as $'\n' or $'\302\205' (bash, zsh, ksh).
std::string shell_word(std::string_view text);

// "shared or own", "a, b or c".
std::string listed(const std::vector<std::string>& names);
// The same of names that a file has: each on one line and cut at 80 bytes, and of more than eight the first eight, with
// their number: "a, b, c, d, e, f, g, h, ... (300 in all)".
std::string listed_briefly(const std::vector<std::string>& names);

}  // namespace abh
