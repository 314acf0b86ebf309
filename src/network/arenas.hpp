#pragma once

#include "blocks/layout.hpp"
#include "device/memory.hpp"
#include "network/capacity.hpp"
#include "network/weights.hpp"

namespace abh {

// Memory of a network other than its weights: activations saved for backward, inference states, and the state that a
// chunk passes to the next, with the stored borders between chunks (extras/chunks/README.md).
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

  // Layout of a network on this memory. `measured`: layout without memory. Blocks find their inference state through a
  // pointer in this object.
  Layout<T> layout(const Layout<T>& measured, Weights<Device, T>& weights) const {
    return {measured, weights.values(),         weights.gradients(),      activations_.as<std::byte>(),
            &state_,  carried_.as<std::byte>(), adjoints_.as<std::byte>()};
  }

  // Selects the hypothesis whose state the decode steps use. copy_state initialises a state as a copy of another.
  void work_on(Index hypothesis) { state_ = state_of(hypothesis); }
  void copy_state(Index to, Index from) {
    device_.copy(state_of(to), static_cast<const std::byte*>(state_of(from)), state_size_);
  }

  // Copies the state that the last chunk passes to the next chunk into border i, and back.
  void keep_border(Index i) { device_.copy(border(i), carried_.as<std::byte>(), carried_size_); }
  void restore_border(Index i) { device_.copy(carried_.as<std::byte>(), border(i), carried_size_); }
  // Sets the gradients of the state after the last chunk to 0.
  void forget_adjoints() { device_.set_zero(adjoints_.as<std::byte>(), adjoint_size_); }

  // Adds the size of this memory for a network that is not constructed.
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
  std::byte* state_;  // of the current hypothesis
  DeviceMemory carried_, adjoints_, borders_;
};

}  // namespace abh
