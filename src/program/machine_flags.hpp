#pragma once

#include "device/choice.hpp"
#include "program/flags.hpp"

namespace abh {

// Registers the flags for device and threads, and the environment variable ATTENTION_ISA.
void add_machine_flags(Flags& flags, DeviceChoice& choice);

}  // namespace abh
