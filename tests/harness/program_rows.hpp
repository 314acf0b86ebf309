#pragma once

// Rows of the tests of programs.

#include <string>
#include <vector>

#include "tests/harness/program.hpp"
#include "tests/harness/rows.hpp"

namespace abh {

// Arguments that a program refuses with status 2 before it reads a file, and parts of its message.
struct Refusal {
  std::string program;
  Arguments arguments;
  std::vector<std::string> words;
};

// Flags of train, and "FLAG: REASON" for each flag without effect.
struct FlagNotes {
  std::string flags;
  std::vector<std::string> notes;
};

// Tags of further rows: flags of models that learn a text, of models that no machine has memory for, of extreme models,
// and of models that --init-from refuses for another one; and programs with a --help.
struct ForLearning;
struct TooLarge;
struct Extreme;
struct OtherModel;
struct ForHelp;

}  // namespace abh
