#pragma once

#include <algorithm>
#include <string>

#include "tests/harness/folder.hpp"

namespace abh {

// A file of the repository with line breaks replaced by blanks, so that a search finds wrapped sentences.
inline std::string document(const std::string& path) {
  std::string text = read_bytes(std::string(ABH_SOURCE_DIR) + "/" + path);
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace abh
