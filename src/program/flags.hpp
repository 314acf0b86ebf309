#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/types.hpp"

namespace abh {

// The release this source belongs to. The build passes the one number it keeps; a bare compiler call has none.
#ifdef ABH_VERSION
inline constexpr std::string_view version = ABH_VERSION;
#else
inline constexpr std::string_view version = "unversioned";
#endif

// The limits of a real-valued flag: every finite number without limits, infinities and NaN never.
struct RealLimits {
  double low = std::numeric_limits<double>::lowest();
  double high = std::numeric_limits<double>::max();
};

// A strict command-line parser. Every flag is long and takes exactly one value: `--flag value` or `--flag=value`; only
// bare flags, --help and --version take none. The cut into flags, values and positional arguments is independent of
// which flags exist, so peek_flag can read one value before the others are registered: a bare flag is an error before a
// word that could be its value, and has to stand before another flag, before `--` or last.
//
// A value that begins with `--` has to be written `--flag=value`, so that a forgotten value is not filled by the next
// flag. `--` ends the flags. Names are given without dashes. A registered variable must outlive the call to parse; its
// value at registration is the default that --help shows.
class Flags {
 public:
  // `usage_of_positionals`, for instance "FILE...", allows arguments that are not flags; empty refuses them.
  Flags(std::string program, std::string summary, std::string usage_of_positionals = "");

  // Starts a group of flags in --help.
  void section(const std::string& title);

  // Flags registered from here on belong to this use of the program, one of several; "": to all. Uses may share a flag,
  // which then is read into the variable of each.
  void use(const std::string& use) { next_use_ = use; }
  // Whether a flag is one of this use's own.
  bool is_of(std::string_view name, const std::string& use) const;
  // UsageError if a flag of other uses was given; `chosen` says how this one was: "--task text".
  void require_use(const std::string& use, const std::string& chosen) const;

  // An environment variable that the program reads, for --help.
  void environment(const std::string& variable, const std::string& meaning);
  // The name that other programs have for a flag: whoever tries that name is told ours.
  void also_called(const std::string& word, const std::string& flag);

  // Registration. `placeholder` stands for the value in --help and should name its unit: "STEPS", "CHARACTERS", "FILE".
  // Whole numbers are decimal digits with an optional minus, nothing before or after; limits are inclusive.
  void integer(const std::string& name, Index& target, const std::string& placeholder, const std::string& help,
               Index low = std::numeric_limits<Index>::min(), Index high = std::numeric_limits<Index>::max());
  // Any of the 2^64 seeds.
  void seed(const std::string& name, std::uint64_t& target, const std::string& help);
  // Decimal or scientific notation, without a leading plus. -0 is stored as 0.
  void real(const std::string& name, double& target, const std::string& placeholder, const std::string& help,
            RealLimits limits = {});
  // Any text, the empty one included.
  void text(const std::string& name, std::string& target, const std::string& placeholder, const std::string& help);
  // One of the listed words.
  void choice(const std::string& name, std::string& target, const std::vector<std::string>& choices,
              const std::string& help);
  // 0 or 1.
  void toggle(const std::string& name, bool& target, const std::string& help);
  // Takes no value: true if it is given. The default is false.
  void bare(const std::string& name, bool& target, const std::string& help);

  // Reads argv[1..argc) into the registered variables. Returns the status to leave with after --help or --version,
  // which win over every error and print to standard output; nullopt means: go on. Anything else that is not understood
  // is a UsageError which names the flag, what was found and what was expected; the variables are then partly set.
  std::optional<int> parse(int argc, const char* const* argv);

  // Whether a registered flag stood on the command line, and those that said something else than their default.
  struct Change {
    std::string name, default_value, value;
  };
  bool given(std::string_view name) const;
  // The value of a registered flag, as it would be written on the command line.
  std::string value(std::string_view name) const;
  std::vector<Change> changes() const;
  const std::vector<std::string>& positionals() const { return positionals_; }

  // The text of --help: as wide as the terminal, and at most 100 columns.
  std::string help() const;
  std::string help(std::size_t columns) const;

 private:
  struct Flag {
    std::string name, placeholder, help;        // no placeholder: a bare flag
    std::string limits;                         // shown by --help where the placeholder does not say it; may be empty
    std::string expected;                       // "a whole number from 0 to 10", for errors
    std::function<std::string()> get;           // the value as it would be written on the command line
    std::function<bool(std::string_view)> set;  // false: the text is not a value of this flag
    std::string section = {};                   // heading above this flag, if it is the first of its section
    std::string default_value = {};
    std::vector<std::string> uses = {};                                // none: all
    std::vector<std::pair<std::string, std::string>> other_help = {};  // names of later uses, and their text
    void add_help(const std::string& use, const std::string& text);
    std::string whole_help() const;
  };
  template <class Number>
  void number(const std::string& name, Number& target, const std::string& placeholder, const std::string& help,
              const std::string& noun, const std::string& limits, Number low, Number high);
  void add(Flag flag);
  const Flag* find(std::string_view name) const;
  std::string nearest_flag(std::string_view written) const;

  std::string program_, summary_, positional_usage_, next_section_, next_use_;
  std::vector<Flag> flags_;
  std::vector<std::pair<std::string, std::string>> environment_, other_words_;
  std::vector<std::string> given_, positionals_;
};

// The value of one flag, read before the others (a preset, say, which sets the defaults of the rest); nullopt where the
// flag or its value is missing. It judges nothing: errors are left to Flags::parse.
std::optional<std::string> peek_flag(int argc, const char* const* argv, std::string_view name);

// `--name value`, to be pasted behind a program's name.
std::string pasted_flag(const std::string& name, std::string_view value);

}  // namespace abh
