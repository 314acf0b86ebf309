#pragma once

#include "tests/layer_case.hpp"

namespace abh {

// Runs body(device) on every device that computes in float: those of for_each_cpu and of for_each_gpu.
template <class Body>
void for_each_device(Index threads, const Body& body) {
  const auto named = [&](auto& device, const std::string& name) {
    INFO(name);
    body(device);
  };
  for_each_cpu(threads, named);
  for_each_gpu(named);
}

}  // namespace abh
