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

// Release of this source. The build defines ABH_VERSION; a compiler call without the build does not.
#ifdef ABH_VERSION
inline constexpr std::string_view version = ABH_VERSION;
#else
inline constexpr std::string_view version = "unversioned";
#endif

// Limits of a real-valued flag. The default allows every finite number; infinities and NaN are never allowed.
struct RealLimits {
  double low = std::numeric_limits<double>::lowest();
  double high = std::numeric_limits<double>::max();
};

// A strict command-line parser. Every flag is long and takes exactly one value: `--flag value` or `--flag=value`. Only
// bare flags, --help and --version take no value. The line is split into flags, values and positional arguments without
// knowledge of the registered flags, so peek_flag can read one value before the other flags are registered. For this
// reason, a bare flag before a word that could be a value is an error. It must stand before another flag, before `--`,
// or last.
//
// A value that begins with `--` must be written `--flag=value`, so the next flag is never taken for a missing value.
// `--` ends the flags. Names are passed without dashes. A registered variable must outlive the call to parse. Its value
// at registration is the default in --help.
class Flags {
 public:
  // usage_of_positionals: for example "FILE...", allows arguments that are not flags; empty: they are errors.
  Flags(std::string program, std::string summary, std::string usage_of_positionals = "");

  // Starts a group of flags in --help.
  void section(const std::string& title);

  // Flags registered after this call belong to this use of the program; "": to all uses. Uses may share a flag; its
  // value is then stored in the variable of each use.
  void use(const std::string& use) { next_use_ = use; }
  // True if the flag belongs to this use.
  bool is_of(std::string_view name, const std::string& use) const;
  // UsageError if a flag of another use is given. chosen: the text that selected this use, for example "--task text".
  void require_use(const std::string& use, const std::string& chosen) const;

  // Registers an environment variable for --help.
  void environment(const std::string& variable, const std::string& meaning);
  // Registers the name of a flag in other programs. The error message for this name suggests the flag.
  void also_called(const std::string& word, const std::string& flag);

  // Registers a flag. placeholder: the name of the value in --help, if possible its unit: "STEPS", "CHARACTERS",
  // "FILE". Whole numbers are decimal digits with an optional minus sign; limits are inclusive.
  void integer(const std::string& name, Index& target, const std::string& placeholder, const std::string& help,
               Index low = std::numeric_limits<Index>::min(), Index high = std::numeric_limits<Index>::max());
  // Any number of 64 bits.
  void seed(const std::string& name, std::uint64_t& target, const std::string& help);
  // Decimal or scientific notation, without a leading plus. -0 is stored as 0.
  void real(const std::string& name, double& target, const std::string& placeholder, const std::string& help,
            RealLimits limits = {});
  // Any text, including the empty text.
  void text(const std::string& name, std::string& target, const std::string& placeholder, const std::string& help);
  // One of the listed words.
  void choice(const std::string& name, std::string& target, const std::vector<std::string>& choices,
              const std::string& help);
  // 0 or 1.
  void toggle(const std::string& name, bool& target, const std::string& help);
  // Flag without a value: true if it is given. The default is false.
  void bare(const std::string& name, bool& target, const std::string& help);

  // Reads argv[1..argc) into the registered variables. Returns an exit status after --help or --version, which print to
  // standard output even if the line has errors; otherwise nullopt. Any other unknown input is a UsageError with the
  // flag, the found and the expected value; some variables are then already set.
  std::optional<int> parse(int argc, const char* const* argv);

  // given: true if a registered flag is on the command line. changes: the given flags with a value other than the
  // default.
  struct Change {
    std::string name, default_value, value;
  };
  bool given(std::string_view name) const;
  // Value of a registered flag, as written on the command line.
  std::string value(std::string_view name) const;
  std::vector<Change> changes() const;
  const std::vector<std::string>& positionals() const { return positionals_; }

  // Text of --help: as wide as the terminal, at most 100 columns.
  std::string help() const;
  std::string help(std::size_t columns) const;

 private:
  struct Flag {
    std::string name, placeholder, help;        // empty placeholder: a bare flag
    std::string limits;                         // limits for --help; may be empty
    std::string expected;                       // "a whole number from 0 to 10", for errors
    std::function<std::string()> get;           // value, as written on the command line
    std::function<bool(std::string_view)> set;  // returns false if the text is not a value of this flag
    std::string section = {};                   // heading above this flag, if it is the first of its section
    std::string default_value = {};
    std::vector<std::string> uses = {};                                // empty: all uses
    std::vector<std::pair<std::string, std::string>> other_help = {};  // names of later uses, and their help texts
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

// Value of one flag, read before the other flags, for example a preset that sets their defaults. nullopt if the flag or
// its value is missing. Flags::parse reports errors.
std::optional<std::string> peek_flag(int argc, const char* const* argv, std::string_view name);

// `--name value`, to be pasted after the name of a program.
std::string pasted_flag(const std::string& name, std::string_view value);

}  // namespace abh
