#pragma once

#include <string>
#include <utility>
#include <vector>

#include "settings/setting_flags.hpp"

namespace abh {

// The flags of a model, with what the registry of mixers knows in their help.
void add_model_flags(Flags& flags, ModelConfig& model, const std::vector<std::string>& only = {});

// The flags that say something of mixers which no layer of this network has, each with those mixers ("additive or
// leap"); `positions alibi` where that value alone does.
std::vector<std::pair<std::string, std::string>> idle_flags(const ModelConfig& model);

}  // namespace abh
