#pragma once

#include <string>
#include <vector>

#include "settings/config.hpp"

namespace abh {

// Names of the presets, and a function that applies one. UsageError for an unknown name.
inline const std::vector<std::string> preset_names = {"tiny", "baby", "shakespeare", "fastformer"};
void apply_preset(const std::string& name, ModelConfig& model, TrainingConfig& training);

}  // namespace abh
