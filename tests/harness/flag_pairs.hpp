#pragma once

// Settings of which a test draws pairs (tests/programs/test_flag_pairs.cpp). A feature adds its own with Rows.

#include <string>

#include "rows.hpp"

namespace abh {

struct PairedFlags {
  std::string flags;  // as train takes them
};

}  // namespace abh
