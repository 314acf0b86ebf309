#pragma once

#include <map>
#include <string>
#include <vector>

#include "network/model.hpp"
#include "settings/config.hpp"

namespace abh {

using WeightsByName = std::map<std::string, std::vector<float>>;

inline WeightsByName by_name(const ModelConfig& config, const std::vector<float>& arena) {
  WeightsByName weights;
  for (const Parameter& parameter : parameter_table(config)) {
    const auto first = arena.begin() + parameter.offset;
    weights[parameter.name] = {first, first + parameter.count};
  }
  return weights;
}

inline std::vector<float> row(const std::vector<float>& table, Index index, Index width) {
  return {table.begin() + index * width, table.begin() + (index + 1) * width};
}

}  // namespace abh
