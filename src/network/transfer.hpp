#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "settings/config.hpp"

namespace abh {

// Weights of a trained network for one that differs from it in its contexts and its vocabulary alone. Tensors are
// matched by name, their rows by number: a position keeps its vector. old_tokens: for each token of `config` its number
// in `old`, -1 for a new one; empty: the vocabularies are the same. Rows that `old` lacks are those of a new network,
// from init_std and seed. Error if a tensor differs in more than its rows.
std::vector<float> transferred_weights(const ModelConfig& old, const std::vector<float>& old_weights,
                                       const ModelConfig& config, double init_std, std::uint64_t seed,
                                       const std::vector<Token>& old_tokens = {});

// For people: "; positions from 65 on are new", where a learned table grows; empty where none does.
std::string new_positions(const ModelConfig& old, const ModelConfig& config);

}  // namespace abh
