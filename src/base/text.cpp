#include "base/text.hpp"

#include <locale.h>
#if __has_include(<xlocale.h>)
#include <xlocale.h>
#endif

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "base/unicode.hpp"
#include "base/utf8.hpp"

namespace abh {

namespace {

bool is_control(char32_t code) { return code < 0x20 || (code >= 0x7F && code < 0xA0); }

// Characters that end a line or change its direction.
bool ends_line(char32_t code) {
  return is_control(code) || code == 0x2028 || code == 0x2029 || code == 0x61C || code == 0x200E || code == 0x200F ||
         (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
}

bool is_seen(char32_t code) {
  const CharacterKind kind = character_kind(code);
  return kind != CharacterKind::hidden && kind != CharacterKind::format;
}

// Byte as an octal escape in $'...' of a shell.
std::string octal(unsigned char byte) {
  std::string text = "\\000";
  for (std::size_t digit = 3; digit > 0; --digit, byte = static_cast<unsigned char>(byte / 8)) {
    text[digit] = static_cast<char>('0' + byte % 8);
  }
  return text;
}

// Cuts a text to at most `longest` bytes, at the border of a character.
std::string cut(std::string text, std::size_t longest) {
  if (text.size() <= longest) return text;
  std::size_t end = longest;
  while (end > 0 && (text[end] & 0xC0) == 0x80) --end;
  return text.replace(end, text.npos, " ...");
}

constexpr std::size_t longest_quotation = 80, most_names = 8;

// Replaces each character with is_wrong(code) by stand_in(code).
template <class IsWrong, class StandIn>
std::string replaced(std::string_view text, const IsWrong& is_wrong, const StandIn& stand_in) {
  std::string line;
  for (std::size_t position = 0; position < text.size();) {
    const std::size_t begin = position;
    const char32_t code = next_code_point(text, position);
    if (code == invalid_code_point) ++position;
    if (is_wrong(code)) {
      line += stand_in(code);
    } else {
      line.append(text, begin, position - begin);
    }
  }
  return line;
}

// Escape of a character: \u001B for U+001B.
std::string escape(char32_t code) { return "\\u" + code_text(code).substr(2); }

}  // namespace

std::size_t edit_distance(std::string_view from, std::string_view to) {
  const std::size_t width = to.size() + 1;
  std::vector<std::size_t> table((from.size() + 1) * width);
  const auto at = [&](std::size_t i, std::size_t j) -> std::size_t& { return table[i * width + j]; };
  for (std::size_t i = 0; i <= from.size(); ++i) {
    for (std::size_t j = 0; j <= to.size(); ++j) {
      if (i == 0 || j == 0) {
        at(i, j) = i + j;
        continue;
      }
      const std::size_t replaced = at(i - 1, j - 1) + (from[i - 1] != to[j - 1] ? 1 : 0);
      at(i, j) = std::min({at(i - 1, j) + 1, at(i, j - 1) + 1, replaced});
      if (i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1]) {
        at(i, j) = std::min(at(i, j), at(i - 2, j - 2) + 1);
      }
    }
  }
  return at(from.size(), to.size());
}

std::optional<double> real_from_text(std::string_view text) {
  // strtod_l would also accept leading white space or plus, and hexadecimal digits.
  const std::string_view magnitude = text.substr(text.starts_with('-') ? 1 : 0);
  const bool digits = magnitude.find_first_of("0123456789.") == 0;
  const bool word = magnitude.find_first_of("iInN") == 0;
  const bool hexadecimal = magnitude.starts_with("0x") || magnitude.starts_with("0X");
  if ((!digits && !word) || hexadecimal) return std::nullopt;

  static const locale_t no_locale = ::newlocale(LC_ALL_MASK, "C", nullptr);
  const std::string terminated(text);
  char* end = nullptr;
  const double value = ::strtod_l(terminated.c_str(), &end, no_locale);
  if (end != terminated.c_str() + terminated.size()) return std::nullopt;
  const bool too_large = digits && std::isinf(value);
  const bool too_small =
      value == 0 && magnitude.substr(0, magnitude.find_first_of("eE")).find_first_of("123456789") != text.npos;
  if (too_large || too_small) return std::nullopt;
  return value;
}

std::string escaped_controls(std::string_view text, std::string_view kept) {
  const auto is_obeyed = [&](char32_t code) {
    return is_control(code) && (code >= 0x80 || kept.find(static_cast<char>(code)) == kept.npos);
  };
  return replaced(text, is_obeyed, escape);
}

std::string escaped_line(std::string_view text) { return replaced(text, ends_line, escape); }

std::string one_line(std::string text) {
  return replaced(cut(std::move(text), 4000), ends_line, [](char32_t) { return ' '; });
}

std::string in_quotes(std::string_view text) { return '"' + one_line(cut(std::string(text), longest_quotation)) + '"'; }

std::string shell_word(std::string_view text) {
  constexpr std::string_view harmless = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./,:+@%=";
  bool plain = !text.empty() && text.front() != '=', seen = true;
  for (std::size_t position = 0; position < text.size() && seen;) {
    const char32_t code = next_code_point(text, position);
    seen = code != invalid_code_point && is_seen(code);
    plain = plain && (code >= 0x80 || harmless.find(static_cast<char>(code)) != harmless.npos);
  }
  if (plain && seen) return std::string(text);
  std::string word = seen ? "'" : "$'";
  for (std::size_t position = 0; position < text.size();) {
    const std::size_t begin = position;
    const char32_t code = next_code_point(text, position);
    if (code == invalid_code_point) ++position;
    const std::string_view bytes = text.substr(begin, position - begin);
    if (seen) {
      word += code == '\'' ? "'\\''" : bytes;
    } else if (code == '\n') {
      word += "\\n";
    } else if (code == '\'' || code == '\\') {
      word += '\\';
      word += bytes;
    } else if (code != invalid_code_point && is_seen(code)) {
      word += bytes;
    } else {
      for (const char byte : bytes) word += octal(static_cast<unsigned char>(byte));
    }
  }
  return word + "'";
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blanks[] = {" ", "\t", "\n", "\v", "\f", "\r", "\u00A0", "\u3000"};
  for (std::size_t before = text.size() + 1; text.size() < before;) {
    before = text.size();
    for (const std::string_view blank : blanks) {
      if (text.starts_with(blank)) text.remove_prefix(blank.size());
      if (text.ends_with(blank)) text.remove_suffix(blank.size());
    }
  }
  return text;
}

std::string small_letters(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return 'A' <= c && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return text;
}

std::vector<std::string> words_in(std::string_view text) {
  constexpr std::string_view white = " \t\n\v\f\r";
  std::vector<std::string> words;
  while (true) {
    const std::size_t begin = text.find_first_not_of(white);
    if (begin == text.npos) return words;
    text.remove_prefix(begin);
    const std::size_t end = std::min(text.find_first_of(white), text.size());
    words.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
  }
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + names[i];
  }
  return text;
}

std::string listed_briefly(const std::vector<std::string>& names) {
  std::vector<std::string> shown;
  for (std::size_t i = 0; i < std::min(names.size(), most_names); ++i) {
    shown.push_back(one_line(cut(names[i], longest_quotation)));
  }
  if (names.size() <= most_names) return listed(shown);
  std::string text;
  for (const std::string& name : shown) text += name + ", ";
  return text + "... (" + to_text(names.size()) + " in all)";
}

}  // namespace abh
