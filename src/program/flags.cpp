#include "program/flags.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "base/extras.hpp"
#include "base/text.hpp"
#include "program/terminal.hpp"

namespace abh {
namespace {

// Largest and smallest width of --help. Help texts begin at column help_indent. A flag that is longer than this column
// has its own line.
constexpr std::size_t widest_help = 100, narrowest_help = 40;
std::size_t help_indent(std::size_t columns) { return columns < 72 ? 8 : 32; }

// Width of the terminal on standard output; widest_help if it is no terminal.
std::size_t columns_of_help() {
  return std::clamp(terminal_columns().value_or(widest_help), narrowest_help, widest_help);
}

// One flag as written on the command line, before it is compared with the registered flags.
struct Item {
  std::string name;                  // name without dashes
  bool one_dash = false;             // true: one dash instead of two, which is an error
  std::optional<std::string> value;  // none: `--flag` is the last word, or another flag follows
  std::string follower;              // the flag at the place of the value
};

struct CommandLine {
  std::vector<Item> items;
  std::vector<std::string> positionals;
};

bool takes_no_value(std::string_view name) { return name == "help" || name == "version"; }

// Splits the command line into flags and positional arguments.
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

// "from 0 to 1", "at least 0", "at most 1", or an empty text. An empty argument means no limit.
std::string limits_in_words(const std::string& low, const std::string& high) {
  if (!low.empty() && !high.empty()) return "from " + low + " to " + high;
  if (!low.empty()) return "at least " + low;
  return high.empty() ? "" : "at most " + high;
}

// Appends words to `out`, starting at column `column`, and breaks lines before `columns`.
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

}  // namespace

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
  std::vector<std::string> present = choices;
  std::erase_if(present, [&](const std::string& value) { return !absent_feature(name, value).empty(); });
  const auto set = [&target, choices](std::string_view value) {
    if (std::find(choices.begin(), choices.end(), value) == choices.end()) return false;
    target = value;
    return true;
  };
  add({name, join(present, "|"), help, "", "one of " + join(present, ", "), [&target] { return target; }, set});
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
  assert(!takes_no_value(flag.name));
  if (!absent_feature(flag.name).empty()) return;
  const auto same = std::find_if(flags_.begin(), flags_.end(), [&](const Flag& f) { return f.name == flag.name; });
  if (same != flags_.end()) {
    assert(!next_use_.empty() && !same->uses.empty() && same->placeholder == flag.placeholder);
    same->uses.push_back(next_use_);
    same->add_help(next_use_, flag.help);
    same->set = [first = same->set, second = flag.set](std::string_view text) { return first(text) && second(text); };
    return;
  }
  flag.section = std::exchange(next_section_, {});
  flag.default_value = flag.get();
  if (!next_use_.empty()) flag.uses.push_back(next_use_);
  flags_.push_back(std::move(flag));
}

void Flags::Flag::add_help(const std::string& use, const std::string& text) {
  if (text == help) return;
  const auto says_it = [&](const auto& other) { return other.second == text; };
  const auto other = std::find_if(other_help.begin(), other_help.end(), says_it);
  if (other != other_help.end()) {
    other->first += ", " + use;
  } else {
    other_help.emplace_back(use, text);
  }
}

std::string Flags::Flag::whole_help() const {
  std::string whole = help;
  for (const auto& [uses_of_it, text] : other_help) whole += "; " + uses_of_it + ": " + text;
  return whole;
}

bool Flags::is_of(std::string_view name, const std::string& use) const {
  const std::vector<std::string>& uses = find(name)->uses;
  return std::find(uses.begin(), uses.end(), use) != uses.end();
}

void Flags::require_use(const std::string& use, const std::string& chosen) const {
  for (const std::string& name : given_) {
    if (takes_no_value(name) || find(name)->uses.empty() || is_of(name, use)) continue;
    throw UsageError("--" + name + ": expected only with " + listed(find(name)->uses) + ", found " + chosen);
  }
}

const Flags::Flag* Flags::find(std::string_view name) const {
  const auto flag = std::find_if(flags_.begin(), flags_.end(), [&](const Flag& f) { return f.name == name; });
  return flag == flags_.end() ? nullptr : &*flag;
}

bool Flags::given(std::string_view name) const {
  assert(find(name) || !absent_feature(name).empty());
  return std::find(given_.begin(), given_.end(), name) != given_.end();
}

std::string Flags::value(std::string_view name) const {
  assert(find(name));
  return find(name)->get();
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
  std::replace(name.begin(), name.end(), '_', '-');  // accepts underscores instead of dashes
  for (const auto& [word, flag] : other_words_) {
    if (word == name && find(flag)) return flag;
  }
  std::vector<std::string> candidates = {"help", "version"};
  for (const Flag& flag : flags_) candidates.push_back(flag.name);
  std::size_t best = std::numeric_limits<std::size_t>::max();
  std::string nearest;
  for (const std::string& candidate : candidates) {
    const bool cut_off =
        !name.empty() && candidate.starts_with(name);  // a prefix has the same distance as one wrong character
    const std::size_t distance = cut_off ? 1 : edit_distance(name, candidate);
    if (distance < best) {
      best = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

std::optional<int> Flags::parse(int argc, const char* const* argv) {
  // --help prints the help even if the rest of the line is wrong.
  for (int i = 1; i < argc && std::strcmp(argv[i], "--") != 0; ++i) {
    const std::string_view token = argv[i];
    const bool asks_for_help = token == "--help" || token == "-h", asks_for_version = token == "--version";
    if (asks_for_help) print(help(columns_of_help()));
    if (asks_for_version) print(program_ + " (Attention by Hand) " + std::string(version) + "\n");
    if (asks_for_help || asks_for_version) return 0;
  }
  CommandLine line = cut(argc, argv);
  for (const Item& item : line.items) {
    const std::string flag_name = (item.one_dash ? "-" : "--") + item.name;
    const Flag* flag = find(item.name);
    if (const std::string fault = absent_feature(item.name, item.value.value_or("")); !fault.empty()) {
      throw UsageError(flag_name + (flag ? " " + item.value.value_or("") : "") + ": " + fault);
    }
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
    // Breaks the line between two alternatives if they do not fit.
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
    entry("  --" + flag.name + placeholder, flag.whole_help() + " (" + limits + "default: " + shown_default + ")");
  }
  out += "\n";
  entry("  --help, -h", "print this help and exit");
  entry("  --version", "print the version and exit");
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

std::string pasted_flag(const std::string& name, std::string_view value) {
  return "--" + name + (value.starts_with("--") ? "=" : " ") + shell_word(value);
}

}  // namespace abh
