#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "settings/config.hpp"

namespace abh {

// Weights of a trained network, for a network that only differs in context lengths and vocabulary. Tensors are matched
// by name and rows by number, so a position keeps its vector. old_tokens: number in `old` of each token of `config`, -1
// for a new token; empty: same vocabularies. Other rows have the initial values for init_std and seed. Error if a
// tensor differs in more than its rows.
std::vector<float> transferred_weights(const ModelConfig& old, const std::vector<float>& old_weights,
                                       const ModelConfig& config, double init_std, std::uint64_t seed,
                                       const std::vector<Token>& old_tokens = {});

// Text for messages: "; positions from 65 on are new", if a learned table grows; else empty.
std::string new_positions(const ModelConfig& old, const ModelConfig& config);

}  // namespace abh
