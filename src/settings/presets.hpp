#pragma once

#include <string>
#include <vector>

#include "settings/config.hpp"

namespace abh {

// The presets, and what they set. UsageError for another name.
inline const std::vector<std::string> preset_names = {"tiny", "baby", "shakespeare", "fastformer"};
void apply_preset(const std::string& name, ModelConfig& model, TrainingConfig& training);

}  // namespace abh
