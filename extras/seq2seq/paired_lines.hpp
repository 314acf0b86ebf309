#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/types.hpp"

namespace abh {

// A line of a file of pairs: a source, a tab and a target. What follows a second tab is not read.
struct PairedLine {
  std::string_view source, target;
  Index line;  // of the file, from 1
};

// Lines that are empty are left out, and so is a carriage return at the end of one. Error, naming `path` and the line,
// for one without a tab. Views of `text`.
std::vector<PairedLine> paired_lines(std::string_view text, const std::string& path);

}  // namespace abh
