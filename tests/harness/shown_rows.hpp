#pragma once

// Arrays that the blocks of mixers report when they are inspected.

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/harness/rows.hpp"

namespace abh {

// A pooling of a mixer: the names of its weights, its payload and its average.
struct ShownPooling {
  std::string mixer, weight, payload, average;
};

// A check of all that the block of a mixer shows, by name, for two sequences of nine positions and twelve channels.
struct ShownBlock {
  std::string mixer;
  std::function<void(const std::map<std::string, std::vector<double>>&)> check;
};

}  // namespace abh
