#include "program/flags.hpp"

#include <fcntl.h>
#include <locale.h>
#include <sys/ioctl.h>
#include <unistd.h>
#if __has_include(<xlocale.h>)
#include <xlocale.h>
#endif

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <new>
#include <utility>

#include "base/error.hpp"
#include "base/unicode.hpp"
#include "base/utf8.hpp"
#include "files/atomic_file.hpp"

namespace abh {
namespace {

// Help is no wider than a line is read with ease. Texts begin at a column of their own, and nearer where the window is
// narrow; a longer flag gets a line of its own.
constexpr std::size_t widest_help = 100, narrowest_help = 40;
std::size_t help_indent(std::size_t columns) { return columns < 72 ? 8 : 32; }

// Of the terminal that standard output is; the widest where it is none.
std::size_t terminal_columns() {
  winsize window{};
  if (::isatty(STDOUT_FILENO) != 1 || ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) != 0 || window.ws_col == 0) {
    return widest_help;
  }
  return std::clamp<std::size_t>(window.ws_col, narrowest_help, widest_help);
}

// One flag of the command line as it was written, before anything is known about it.
struct Item {
  std::string name;                  // without the dashes
  bool one_dash = false;             // instead of two: no flag
  std::optional<std::string> value;  // none: `--flag` stood last, or another flag followed
  std::string follower;              // the flag that stood where the value belongs
};

struct CommandLine {
  std::vector<Item> items;
  std::vector<std::string> positionals;
};

bool takes_no_value(std::string_view name) { return name == "help" || name == "version"; }

// The one place that knows the grammar.
CommandLine cut(int argc, const char* const* argv) {
  CommandLine line;
  for (int i = 1; i < argc; ++i) {
    const std::string_view token = argv[i];
    if (token == "--") {
      line.positionals.insert(line.positionals.end(), argv + i + 1, argv + argc);
      break;
    }
    if (!token.starts_with("--")) {
      if (token.starts_with("-") && token != "-") {
        const std::string_view name = token.substr(1, token.find('=') - 1);
        line.items.push_back({.name = std::string(name), .one_dash = true, .value = std::nullopt, .follower = {}});
      } else {
        line.positionals.emplace_back(token);
      }
      continue;
    }
    Item item;
    const std::size_t equals = token.find('=');
    item.name = token.substr(2, equals == token.npos ? token.npos : equals - 2);
    if (equals != token.npos) {
      item.value = token.substr(equals + 1);
    } else if (i + 1 < argc) {
      const std::string_view next = argv[i + 1];
      if (next.starts_with("--")) {
        item.follower = next;
      } else {
        item.value = next;
        ++i;
      }
    }
    line.items.push_back(std::move(item));
  }
  return line;
}

std::string quoted(std::string_view text) { return '"' + std::string(text) + '"'; }

std::string join(const std::vector<std::string>& parts, const char* separator) {
  std::string out;
  for (const std::string& part : parts) out += (out.empty() ? "" : separator) + part;
  return out;
}

// "from 0 to 1", "at least 0", "at most 1", or nothing; an empty text is no limit.
std::string limits_in_words(const std::string& low, const std::string& high) {
  if (!low.empty() && !high.empty()) return "from " + low + " to " + high;
  if (!low.empty()) return "at least " + low;
  return high.empty() ? "" : "at most " + high;
}

// Appends words to `out`, which already stands at column `column`, and breaks lines before `columns`.
void append_wrapped(std::string& out, std::size_t columns, std::size_t column, std::size_t indent,
                    std::string_view words) {
  bool first = true;
  while (!words.empty()) {
    const std::size_t length = std::min(words.find(' '), words.size());
    if (!first && column + 1 + length > columns) {
      out += '\n' + std::string(indent, ' ');
      column = indent;
      first = true;
    }
    if (!first) out += ' ';
    out += words.substr(0, length);
    column += length + (first ? 0 : 1);
    first = false;
    words.remove_prefix(std::min(length + 1, words.size()));
  }
  out += '\n';
}

// What would break a line in two, or turn it around.
bool ends_line(char32_t code) {
  return code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x2028 || code == 0x2029 || code == 0x61C ||
         code == 0x200E || code == 0x200F || (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
}

bool is_seen(char32_t code) {
  const CharacterKind kind = character_kind(code);
  return kind != CharacterKind::hidden && kind != CharacterKind::format;
}

// A byte as a shell's $'...' has it.
std::string octal(unsigned char byte) {
  std::string text = "\\000";
  for (std::size_t digit = 3; digit > 0; --digit, byte = static_cast<unsigned char>(byte / 8)) {
    text[digit] = static_cast<char>('0' + byte % 8);
  }
  return text;
}

// A standard stream that is closed would lend its number to the next file opened, and messages would land in that file.
// A stand-in open the wrong way round keeps the number taken and still fails on use.
void guard_standard_streams() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) == -1) static_cast<void>(::open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY));
  }
}

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

Flags::Flags(std::string program, std::string summary, std::string usage_of_positionals)
    : program_(std::move(program)), summary_(std::move(summary)), positional_usage_(std::move(usage_of_positionals)) {}

void Flags::section(const std::string& title) { next_section_ = title; }

void Flags::environment(const std::string& variable, const std::string& meaning) {
  environment_.emplace_back(variable, meaning);
}

void Flags::also_called(const std::string& word, const std::string& flag) { other_words_.emplace_back(word, flag); }

template <class Number>
void Flags::number(const std::string& name, Number& target, const std::string& placeholder, const std::string& help,
                   const std::string& noun, const std::string& limits, Number low, Number high) {
  const auto set = [&target, low, high](std::string_view text) {
    const std::optional<Number> value = from_text<Number>(text);
    if (!value || !(*value >= low && *value <= high)) return false;
    target = *value + Number{0};  // -0 + 0 is 0
    return true;
  };
  const std::string expected = noun + (limits.empty() ? "" : " " + limits);
  add({name, placeholder, help, limits, expected, [&target] { return to_text(target); }, set});
}

void Flags::integer(const std::string& name, Index& target, const std::string& placeholder, const std::string& help,
                    Index low, Index high) {
  const std::string limits = limits_in_words(low == std::numeric_limits<Index>::min() ? "" : to_text(low),
                                             high == std::numeric_limits<Index>::max() ? "" : to_text(high));
  number(name, target, placeholder, help, "a whole number", limits, low, high);
}

void Flags::seed(const std::string& name, std::uint64_t& target, const std::string& help) {
  const std::uint64_t low = 0, high = std::numeric_limits<std::uint64_t>::max();
  number(name, target, "N", help, "a whole number", limits_in_words(to_text(low), to_text(high)), low, high);
}

void Flags::real(const std::string& name, double& target, const std::string& placeholder, const std::string& help,
                 RealLimits limits) {
  const RealLimits none;
  const std::string words = limits_in_words(limits.low == none.low ? "" : to_text(limits.low),
                                            limits.high == none.high ? "" : to_text(limits.high));
  number(name, target, placeholder, help, words.empty() ? "a finite number" : "a number", words, limits.low,
         limits.high);
}

void Flags::text(const std::string& name, std::string& target, const std::string& placeholder,
                 const std::string& help) {
  const auto set = [&target](std::string_view value) {
    target = value;
    return true;
  };
  add({name, placeholder, help, "", placeholder, [&target] { return target; }, set});
}

void Flags::choice(const std::string& name, std::string& target, const std::vector<std::string>& choices,
                   const std::string& help) {
  const auto set = [&target, choices](std::string_view value) {
    if (std::find(choices.begin(), choices.end(), value) == choices.end()) return false;
    target = value;
    return true;
  };
  add({name, join(choices, "|"), help, "", "one of " + join(choices, ", "), [&target] { return target; }, set});
}

void Flags::toggle(const std::string& name, bool& target, const std::string& help) {
  const auto set = [&target](std::string_view value) {
    if (value != "0" && value != "1") return false;
    target = value == "1";
    return true;
  };
  add({name, "0|1", help, "", "0 or 1", [&target] { return target ? "1" : "0"; }, set});
}

void Flags::bare(const std::string& name, bool& target, const std::string& help) {
  target = false;
  const auto set = [&target](std::string_view) { return target = true; };
  add({name, "", help, "", "", [&target] { return target ? "on" : "off"; }, set});
}

void Flags::add(Flag flag) {
  assert(!find(flag.name) && !takes_no_value(flag.name));
  flag.section = std::exchange(next_section_, {});
  flag.default_value = flag.get();
  flags_.push_back(std::move(flag));
}

const Flags::Flag* Flags::find(std::string_view name) const {
  const auto flag = std::find_if(flags_.begin(), flags_.end(), [&](const Flag& f) { return f.name == name; });
  return flag == flags_.end() ? nullptr : &*flag;
}

bool Flags::given(std::string_view name) const {
  assert(find(name));
  return std::find(given_.begin(), given_.end(), name) != given_.end();
}

std::vector<Flags::Change> Flags::changes() const {
  std::vector<Change> changes;
  for (const std::string& name : given_) {
    const Flag* flag = find(name);
    if (flag->get() != flag->default_value) changes.push_back({name, flag->default_value, flag->get()});
  }
  return changes;
}

std::string Flags::nearest_flag(std::string_view written) const {
  std::string name(written);
  std::replace(name.begin(), name.end(), '_', '-');  // some programs join words by one, some by the other
  for (const auto& [word, flag] : other_words_) {
    if (word == name && find(flag)) return flag;
  }
  std::vector<std::string> candidates = {"help", "version"};
  for (const Flag& flag : flags_) candidates.push_back(flag.name);
  std::size_t best = std::numeric_limits<std::size_t>::max();
  std::string nearest;
  for (const std::string& candidate : candidates) {
    const bool cut_off = !name.empty() && candidate.starts_with(name);  // as near as one wrong character
    const std::size_t distance = cut_off ? 1 : edit_distance(name, candidate);
    if (distance < best) {
      best = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

std::optional<int> Flags::parse(int argc, const char* const* argv) {
  // Whoever asks for help gets it, however wrong the rest of the line is.
  for (int i = 1; i < argc && std::strcmp(argv[i], "--") != 0; ++i) {
    const std::string_view token = argv[i];
    const bool asks_for_help = token == "--help" || token == "-h", asks_for_version = token == "--version";
    if (asks_for_help) std::cout << help(terminal_columns());
    if (asks_for_version) std::cout << program_ << " (Attention by Hand) " << version << '\n';
    if (asks_for_help || asks_for_version) return 0;
  }
  CommandLine line = cut(argc, argv);
  for (const Item& item : line.items) {
    const std::string flag_name = (item.one_dash ? "-" : "--") + item.name;
    const Flag* flag = find(item.name);
    if (item.one_dash || !(flag || takes_no_value(item.name))) {
      throw UsageError("unknown flag " + flag_name + "; did you mean --" + nearest_flag(item.name) + "?");
    }
    const bool bare = takes_no_value(item.name) || flag->placeholder.empty();
    if (bare && item.value) throw UsageError(flag_name + ": takes no value, found " + quoted(*item.value));
    if (!bare && !item.value) {
      throw UsageError(flag_name + ": needs a value (" + flag->expected + ")" +
                       (item.follower.empty() ? "" : ", found " + item.follower));
    }
    if (given(item.name)) throw UsageError(flag_name + ": given twice, expected once");
    if (!flag->set(item.value.value_or(""))) {
      throw UsageError(flag_name + ": expected " + flag->expected + ", found " + quoted(*item.value));
    }
    given_.push_back(item.name);
  }
  if (positional_usage_.empty() && !line.positionals.empty()) {
    throw UsageError("unexpected argument " + quoted(line.positionals.front()) +
                     "; expected only flags, --flag value, see --help");
  }
  positionals_ = std::move(line.positionals);
  return std::nullopt;
}

std::string Flags::help() const { return help(widest_help); }

std::string Flags::help(std::size_t columns) const {
  std::string out;
  append_wrapped(out, columns, 0, 0, program_ + " (Attention by Hand " + std::string(version) + "): " + summary_);
  out += '\n';
  append_wrapped(out, columns, 0, 2,
                 "Usage: " + program_ + " [--flag value | --flag=value]..." +
                     (positional_usage_.empty() ? "" : " [--] " + positional_usage_));
  const std::size_t indent = help_indent(columns);
  const auto entry = [&](const std::string& left, const std::string& right) {
    // Alternatives are broken between two of them where they do not fit.
    std::size_t column = 0;
    for (std::size_t begin = 0, end; begin < left.size(); begin = end) {
      end = std::min(left.find('|', begin), left.size() - 1) + 1;
      if (column > 2 && column + end - begin > columns) {
        out += "\n    ";
        column = 4;
      }
      out += left.substr(begin, end - begin);
      column += end - begin;
    }
    if (column + 2 > indent) {
      out += '\n';
      column = 0;
    }
    out += std::string(indent - column, ' ');
    append_wrapped(out, columns, indent, indent, right);
  };
  if (flags_.empty() || flags_.front().section.empty()) out += "\nFlags:\n";
  for (const Flag& flag : flags_) {
    if (!flag.section.empty()) out += "\n" + flag.section + ":\n";
    const std::string limits = flag.limits.empty() ? "" : flag.limits + "; ";
    const std::string shown_default = flag.default_value.empty() ? "none" : flag.default_value;
    const std::string placeholder = flag.placeholder.empty() ? "" : " " + flag.placeholder;
    entry("  --" + flag.name + placeholder, flag.help + " (" + limits + "default: " + shown_default + ")");
  }
  out += "\n";
  entry("  --help, -h", "print this and leave");
  entry("  --version", "print the version and leave");
  if (!environment_.empty()) out += "\nEnvironment:\n";
  for (const auto& [variable, meaning] : environment_) entry("  " + variable, meaning);
  return out;
}

std::optional<std::string> peek_flag(int argc, const char* const* argv, std::string_view name) {
  for (const Item& item : cut(argc, argv).items) {
    if (item.name == name) return item.value;
  }
  return std::nullopt;
}

std::optional<double> real_from_text(std::string_view text) {
  // strtod_l would also take white space and a plus in front, and hexadecimal digits.
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

std::string one_line(std::string text) {
  constexpr std::size_t longest = 4000;
  if (text.size() > longest) {
    std::size_t end = longest;
    while (end > 0 && (text[end] & 0xC0) == 0x80) --end;  // not inside of a character
    text.replace(end, text.npos, " ...");
  }
  std::string line;
  for (std::size_t position = 0; position < text.size();) {
    const std::size_t begin = position;
    const char32_t code = next_code_point(text, position);
    if (code == invalid_code_point) ++position;
    if (ends_line(code)) {
      line += ' ';
    } else {
      line.append(text, begin, position - begin);
    }
  }
  return line;
}

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

std::string pasted_flag(const std::string& name, std::string_view value) {
  return "--" + name + (value.starts_with("--") ? "=" : " ") + shell_word(value);
}

void flush_standard_output() {
  errno = 0;
  std::cout.flush();
  std::fflush(stdout);
  if (std::cout && !std::ferror(stdout)) return;
  // The failure may be an earlier one, whose reason is gone.
  throw Error(std::string("standard output: cannot write: ") + (errno != 0 ? std::strerror(errno) : "write error"));
}

int run_program(const char* name, int argc, char** argv, int (*body)(int, char**)) {
  ignore_file_size_signal();
  std::signal(SIGPIPE, SIG_IGN);
  guard_standard_streams();
  std::string message;
  int status = 1;
  try {
    const int body_status = body(argc, argv);
    const int hung_up = 128 + SIGHUP;  // with the terminal, what is printed is lost
    if (body_status != hung_up) flush_standard_output();
    return body_status;
  } catch (const Error& error) {
    message = error.what();
    status = error.status();
  } catch (const std::bad_alloc&) {
    message = "out of memory";
  } catch (const std::exception& error) {
    message = error.what();
  }
  // What was printed before the error belongs before it; that it cannot be written is no longer the news.
  std::cout.flush();
  std::fflush(stdout);
  std::cerr << name << ": " << one_line(message) << '\n';
  return status;
}

}  // namespace abh
