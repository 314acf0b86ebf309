#pragma once

#include <cstdint>
#include <vector>

#include "blocks/layout.hpp"
#include "settings/config.hpp"

namespace abh {

// Draws the weights of a new model. Weight i of table row p is normal number i of (seed, step p).
std::vector<float> initial_weights(const std::vector<Parameter>& parameters, const ModelConfig& config, double std_dev,
                                   std::uint64_t seed);

}  // namespace abh
