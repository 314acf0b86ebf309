#pragma once

// Settings that a test combines in random pairs (tests/programs/test_flag_pairs.cpp). A feature adds settings with
// Rows.

#include <string>

#include "rows.hpp"

namespace abh {

struct PairedFlags {
  std::string flags;  // as train takes them
};

}  // namespace abh
