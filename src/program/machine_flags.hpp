#pragma once

#include "device/choice.hpp"
#include "program/flags.hpp"

namespace abh {

// The flags of every program that computes, and the environment variable.
void add_machine_flags(Flags& flags, DeviceChoice& choice);

}  // namespace abh
