#pragma once

// Replaces src/network/networks.hpp: a page has one network.

#include "network/devices.hpp"
#include "network/network.hpp"

namespace abh {

using AnyNetwork = Network<PageDevice, float>;

}  // namespace abh
