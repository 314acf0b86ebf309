#pragma once

// Replaces src/network/devices.hpp: a page has one device.

#include <memory>
#include <string>
#include <type_traits>

#include "device/choice.hpp"
#include "extras/lab/device.hpp"

namespace abh {

template <bool narrow = true, class Body>
auto with_device_type(const DeviceChoice&, const std::string&, const Body& body) {
  return body.template operator()<PageDevice, float>();
}

inline std::unique_ptr<PageDevice> make_device(std::type_identity<PageDevice>, const DeviceChoice&, Mode mode) {
  return std::make_unique<PageDevice>(mode);
}
inline std::string name_of(const PageDevice&, const DeviceChoice&, const std::string&) { return "cpu, baseline"; }

}  // namespace abh
