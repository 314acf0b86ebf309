#pragma once

// Invalid settings. Rows<ConfigFault, ModelConfig> are faults of a network, Rows<ConfigFault, TrainingConfig> faults of
// a training. Rows<std::string, ModelConfig> and <..., TrainingConfig> set keys to values other than their defaults.

#include <string>

#include "settings/config.hpp"
#include "tests/harness/rows.hpp"

namespace abh {

// Changes to a valid configuration, and the message that they cause, or "no error".
struct ConfigFault {
  std::string changes, message;
};

}  // namespace abh
