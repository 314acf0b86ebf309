#pragma once

#include "blocks/layout.hpp"
#include "device/memory.hpp"
#include "network/capacity.hpp"
#include "network/weights.hpp"

namespace abh {

// The memory of a network beside its weights: what forward saves for backward, what a step keeps for the next, and what
// a chunk hands to the next (extras/chunks/README.md), with the borders between chunks that are kept.
template <class Device, class T>
class Arenas {
 public:
  Arenas(Device& device, const Layout<T>& measured, const NetworkCapacity& capacity)
      : device_(device),
        carried_size_(static_cast<Index>(measured.carried_bytes())),
        adjoint_size_(capacity.training ? static_cast<Index>(measured.adjoint_bytes()) : 0),
        activations_(device.memory(), measured.activation_bytes()),
        state_size_(static_cast<Index>(measured.state_bytes())),
        states_(device.memory(), static_cast<std::size_t>(capacity.hypotheses) * measured.state_bytes()),
        state_(states_.as<std::byte>()),
        carried_(device.memory(), measured.carried_bytes()),
        adjoints_(device.memory(), static_cast<std::size_t>(adjoint_size_)),
        borders_(device.memory(), static_cast<std::size_t>(capacity.kept_borders()) * measured.carried_bytes()) {}

  // The layout of a network on this memory. `measured`: its layout without.
  // They find what is kept from step to step by a pointer in here.
  Layout<T> layout(const Layout<T>& measured, Weights<Device, T>& weights) const {
    return {measured, weights.values(),         weights.gradients(),      activations_.as<std::byte>(),
            &state_,  carried_.as<std::byte>(), adjoints_.as<std::byte>()};
  }

  // Selects the hypothesis whose state the steps read and write; its state may begin as a copy of another's.
  void work_on(Index hypothesis) { state_ = state_of(hypothesis); }
  void copy_state(Index to, Index from) {
    device_.copy(state_of(to), static_cast<const std::byte*>(state_of(from)), state_size_);
  }

  // Copies the data that the blocks carry from the last pass's chunk to the next into border i, and back.
  void keep_border(Index i) { device_.copy(border(i), carried_.as<std::byte>(), carried_size_); }
  void restore_border(Index i) { device_.copy(carried_.as<std::byte>(), border(i), carried_size_); }
  // Nothing follows the next chunk whose gradient could come back.
  void forget_adjoints() { device_.set_zero(adjoints_.as<std::byte>(), adjoint_size_); }

  // Adds what it takes to the memory of a network that is not built.
  static void count_memory(NetworkMemory& memory, const Layout<T>& measured, const NetworkCapacity& capacity) {
    memory.activation_bytes = measured.activation_bytes();
    memory.state_bytes = static_cast<std::size_t>(capacity.hypotheses) * measured.state_bytes();
    const auto borders = static_cast<std::size_t>(1 + capacity.kept_borders());
    memory.border_bytes = borders * measured.carried_bytes() + (capacity.training ? measured.adjoint_bytes() : 0);
  }

 private:
  std::byte* state_of(Index hypothesis) const { return states_.as<std::byte>() + hypothesis * state_size_; }
  std::byte* border(Index i) { return borders_.as<std::byte>() + i * carried_size_; }

  Device& device_;
  Index carried_size_, adjoint_size_;
  DeviceMemory activations_;
  Index state_size_;
  DeviceMemory states_;
  std::byte* state_;  // of the hypothesis at work
  DeviceMemory carried_, adjoints_, borders_;
};

}  // namespace abh
