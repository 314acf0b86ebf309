#pragma once

// Models, by the interface that the programs have, on devices that are named.

#include <memory>
#include <string>
#include <vector>

#include "network/initial_weights.hpp"
#include "network/model.hpp"

namespace abh {

// The devices of this build that compute in float without a GPU, the CPU first.
inline std::vector<std::string> float_devices() {
  std::vector<std::string> devices = {"cpu", "plain"};
#if defined(ABH_EMULATOR)
  devices.push_back("emulated");
#endif
  return devices;
}

inline std::vector<float> some_weights(const ModelConfig& config, double std_dev, std::uint64_t seed = 1) {
  return initial_weights(parameter_table(config), config, std_dev, seed);
}

inline std::unique_ptr<Model> with_weights(std::unique_ptr<Model> model, const std::vector<float>& weights) {
  model->write(Model::Arena::weights, weights);
  return model;
}

// One to be trained, with initial weights.
inline std::unique_ptr<Model> new_model(const DeviceChoice& device, const ModelConfig& config,
                                        const TrainingConfig& training, double std_dev, std::uint64_t seed = 1,
                                        const std::string& type = "float", bool recompute = false) {
  return with_weights(
      make_model(device, config, training_capacity(config, training, recompute), training.dropout, type),
      some_weights(config, std_dev, seed));
}

}  // namespace abh
