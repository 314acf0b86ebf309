#pragma once

#include <string>
#include <vector>

#include "settings/setting_flags.hpp"

namespace abh {

// The flags of a model, with what the registry of mixers knows in their help.
void add_model_flags(Flags& flags, ModelConfig& model, const std::vector<std::string>& only = {});

// The flags of a model that change nothing in this network; `positions alibi` where that value alone does.
IdleFlags idle_flags(const ModelConfig& model);

}  // namespace abh
