#pragma once

#include <sstream>
#include <string>
#include <vector>

namespace abh {

// Parts of a text that end with `end`, without it, and the text after the last `end`.
inline std::vector<std::string> lines_of(const std::string& text, char end = '\n') {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line, end);) lines.push_back(line);
  return lines;
}

}  // namespace abh
