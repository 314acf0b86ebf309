#pragma once

// Settings that make no network or no training. Rows<ConfigFault, ModelConfig> are those of a network,
// Rows<ConfigFault, TrainingConfig> those of a training. Rows<std::string, ModelConfig> and <..., TrainingConfig> are
// values of keys away from their defaults.

#include <string>

#include "settings/config.hpp"
#include "tests/harness/rows.hpp"

namespace abh {

// Changes to a valid configuration, and the message that they cause, or "no error".
struct ConfigFault {
  std::string changes, message;
};

}  // namespace abh
