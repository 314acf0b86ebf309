#pragma once

#include <algorithm>
#include <string>

#include "tests/harness/folder.hpp"

namespace abh {

// A file of the repository, its line breaks replaced by blanks: sentences are found wherever they are wrapped.
inline std::string document(const std::string& path) {
  std::string text = read_bytes(std::string(ABH_SOURCE_DIR) + "/" + path);
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace abh
