#pragma once

// Networks that tests train.

#include "network/networks.hpp"
#include "tests/harness/block_case.hpp"
#include "tests/harness/network_rows.hpp"

namespace abh {

using Reference = CpuDevice<Isa::baseline>;

// Compiled once: the types in double with the golden-file checks, the others in tests/harness/network_case.cpp.
extern template class Network<Reference, double>;
extern template class Network<PlainDevice, double>;
extern template class Network<CpuDevice<Isa::scalar>, float>;
extern template class Network<CpuDevice<Isa::scalar>, Dual>;

template <class Device>
Device device_of(Index threads) {
  if constexpr (std::is_same_v<Device, PlainDevice>) {
    return {};  // one thread
  } else {
    return Device(threads);
  }
}

// A network of one case on its own device.
template <class Device, class T>
class Built {
 public:
  explicit Built(const NetworkCase& network, const Array<double>& weights, Index threads = 1,
                 Processes& processes = one_process())
      : case_(network),
        tokens_(network.tokens_bc()),
        targets_(network.targets_bc()),
        mask_(network.mask_bc()),
        source_(network.source_bs()),
        source_mask_(network.source_mask_bs()),
        device(device_of<Device>(threads)),
        net(device, network.config,
            {.B = network.B, .C = network.C, .training = true, .recompute = network.recompute, .S = network.S},
            network.dropout, processes) {
    for (std::size_t i = 0; i < weights.size(); ++i) net.weights().values()[i] = static_cast<T>(weights[i]);
  }
  DeviceBatch<T> batch() const { return {tokens_.data(), targets_.data(), nullptr, source_.data()}; }
  PassContext pass() const {
    return {.B = case_.B,
            .C = case_.C,
            .mask_bc = case_.masked ? mask_.data() : nullptr,
            .state = case_.dropout > 0 ? &case_.state : nullptr,
            .S = case_.S,
            .source_mask_bs = case_.masked ? source_mask_.data() : nullptr};
  }
  T forward() {
    net.forward(batch(), pass());
    return *net.loss(batch(), case_.label_smoothing, pass()).mean;
  }
  void backward() { net.backward(batch(), case_.label_smoothing, pass()); }
  Array<double> gradients() {
    const Array<T> all = copy_of(net.weights().gradients());
    return Array<double>(all.begin(), all.end());
  }
  // The numbers of all weights in one of the arenas.
  Array<T> copy_of(const T* arena) { return Array<T>(arena, arena + net.weights().count()); }
  // Runs the part of a training step that follows the gradient.
  void update(const TrainingConfig& training, StepState& state) {
    net.optimizer().measure_gradient(training, &state);
    net.optimizer().update(training, &state);
  }

 private:
  NetworkCase case_;
  std::vector<Token> tokens_, targets_, mask_, source_, source_mask_;

 public:
  Device device;
  Network<Device, T> net;
};

}  // namespace abh
