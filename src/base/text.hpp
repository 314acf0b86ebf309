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

// Shortest text that reads back as the same number, independent of the locale (real_text.cpp).
std::string to_text(double value);
std::string to_text(float value);
template <class Number>
requires std::is_integral_v<Number> std::string to_text(Number value) {
  char buffer[32];
  return std::string(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
}

// Number with this number of decimals, independent of the locale.
std::string fixed_text(double value, int decimals);
// Number with this number of significant digits: "0.0214", "1.5e-07".
std::string short_number(double value, int digits = 3);

// Replaces A to Z by a to z.
std::string small_letters(std::string text);

// Removes white space at both ends, including U+00A0 and U+3000.
std::string_view trimmed(std::string_view text);

// Words of a text, separated by white space.
std::vector<std::string> words_in(std::string_view text);

// from_text<double> for libraries in which std::from_chars reads only whole numbers (libc++), with the same results.
std::optional<double> real_from_text(std::string_view text);

// Number in the whole text; nullopt if the text is not a number. std::from_chars accepts no white space, plus or
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

// Edit distance: insertions, deletions and replacements of a character, and swaps of two neighbours (optimal string
// alignment). Time and memory: the product of the lengths.
std::size_t edit_distance(std::string_view from, std::string_view to);

// Replaces control characters, line separators and direction marks by spaces, and cuts the text to 4,000 bytes. The
// result can be printed as part of a line.
std::string one_line(std::string text);

// Quotation of text from a file in a message: in quotes, on one line, at most 80 bytes.
std::string in_quotes(std::string_view text);

// Replaces the same characters by escapes such as \u001B, without cutting; for output of text from files.
std::string escaped_line(std::string_view text);

// Replaces only control characters, except those in `kept`; for output on a terminal.
std::string escaped_controls(std::string_view text, std::string_view kept = "");

// Quotes a text, such as a path, as one word of a shell command if necessary. The result is on one line; invisible
// characters are written as $'\n' or $'\302\205' (bash, zsh, ksh).
std::string shell_word(std::string_view text);

// "shared or own", "a, b or c".
std::string listed(const std::vector<std::string>& names);
// The same for names from a file: each on one line and at most 80 bytes; of more than eight names the first eight, and
// the number of names: "a, b, c, d, e, f, g, h, ... (300 in all)".
std::string listed_briefly(const std::vector<std::string>& names);

}  // namespace abh
