#pragma once

#include <string>
#include <vector>

#include "settings/setting_flags.hpp"

namespace abh {

// Adds the flags of a model. Help texts list the mixers of each flag.
void add_model_flags(Flags& flags, ModelConfig& model, const std::vector<std::string>& only = {});

// Flags of a model without effect in this network; `positions alibi` if only this value has no effect.
IdleFlags idle_flags(const ModelConfig& model);

}  // namespace abh
