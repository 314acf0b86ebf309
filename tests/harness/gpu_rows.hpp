#pragma once

// Rows of the tests of networks on a GPU.

#include <string>

#include "tests/harness/rows.hpp"

namespace abh {

// Mixers of two layers, with other changes of the settings, that are evaluated and computed step by step.
struct SteppedMixers {
  std::string mixers, changes = {};
};

// Tags of further rows: mixers of five layers, and changes of the settings of three.
struct FiveMixers;
struct ThreeMixers;

}  // namespace abh
