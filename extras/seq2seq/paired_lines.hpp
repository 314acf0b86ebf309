#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/types.hpp"

namespace abh {

// A line of a file of pairs: a source, a tab and a target. Text after a second tab is ignored.
struct PairedLine {
  std::string_view source, target;
  Index line;  // line number in the file, from 1
};

// Skips empty lines and removes carriage returns at line ends. Throws Error with `path` and the line number for a line
// without a tab. Results are views of `text`.
std::vector<PairedLine> paired_lines(std::string_view text, const std::string& path);

}  // namespace abh
