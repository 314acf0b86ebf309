#pragma once

#include <string>
#include <vector>

#include "network/model.hpp"
#include "tests/harness/rows.hpp"
#include "tests/harness/settings.hpp"

namespace abh {

// The names of a mixer's weights in their order, with some settings. Empty: the names of that mixer in the core's list.
struct WeightOrder {
  std::string mixer, names = {}, changes = {};
};

inline std::string names_of(const std::vector<Parameter>& table) {
  std::string names;
  for (const Parameter& parameter : table) names += (names.empty() ? "" : " ") + parameter.name;
  return names;
}

}  // namespace abh
