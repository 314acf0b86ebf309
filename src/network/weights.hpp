#pragma once

#include <memory>
#include <type_traits>
#include <vector>

#include "blocks/layout.hpp"
#include "device/memory.hpp"
#include "device/processes.hpp"
#include "layers/dropout.hpp"
#include "network/capacity.hpp"

namespace abh {

// Weights of a network and, with training, their gradients, summed over the shards of a step and the processes of a
// run. Each of these is one array, the arena, in the order of the layout.
template <class Device, class T>
class Weights {
 public:
  Weights(Device& device, const Layout<T>& measured, const NetworkCapacity& capacity, Processes& processes)
      : device_(device),
        count_(measured.weight_count()),
        front_count_(measured.front_count()),
        shards_(capacity.shards),
        alone_(capacity.shards == 1 && processes.size() == 1),
        values_(device.memory(), bytes_of<T>(count_)),
        masters_(device.memory(), capacity.training && narrow ? bytes_of<Accum<T>>(count_) : 0),
        gradients_(device.memory(), capacity.training ? bytes_of<Accum<T>>(count_) : 0),
        partial_sums_(device.memory(), capacity.training ? partial_sum_bytes(count_, capacity) : 0) {
    device_.set_zero(values(), count_);
    if (!capacity.training) return;
    device_.set_zero(gradients(), count_);
    if constexpr (std::is_same_v<Accum<T>, float>) {
      sums_ = std::make_unique<typename Device::Sums>(device, processes);
    }
  }

  // true: T is narrower than Accum<T> (bf16). Training then keeps master weights in full precision: the optimizer
  // updates them, and the layers read a rounded copy.
  static constexpr bool narrow = !std::is_same_v<T, Accum<T>>;

  Index count() const { return count_; }
  // Number of weights with decay, and of their rows; they come first.
  Index front_count() const { return front_count_; }
  T* values() { return values_.as<T>(); }
  Accum<T>* masters() { return masters_.as<Accum<T>>(); }
  Accum<T>* gradients() { return gradients_.as<Accum<T>>(); }  // null: no training
  // Weights in the precision of the optimizer.
  const Accum<T>* exact() {
    if constexpr (narrow) {
      return masters();
    } else {
      return values();
    }
  }

  // Copy all weights to and from the host.
  std::vector<Accum<T>> read() {
    std::vector<Accum<T>> host(static_cast<std::size_t>(count_));
    if constexpr (narrow) {
      if (!masters()) {
        std::vector<T> rounded(host.size());
        device_.copy_to_host(rounded.data(), values(), count_);
        host.assign(rounded.begin(), rounded.end());
        return host;
      }
    }
    device_.copy_to_host(host.data(), exact(), count_);
    return host;
  }
  void write(const std::vector<Accum<T>>& host) {
    std::vector<T> rounded;
    rounded.reserve(host.size());
    for (Accum<T> weight : host) rounded.push_back(T(weight));
    device_.copy_from_host(values(), rounded.data(), count_);
    if (masters()) device_.copy_from_host(masters(), host.data(), count_);
  }

  // Starts a shard of a step; backward passes then add to the gradients of this shard.
  void begin_shard(Index shard) { shard_ = shard; }
  // Called when the gradients of weights begin ... end - 1 are complete for this shard. Adds them to the earlier
  // shards. In the last shard, starts the all-reduce over the processes, which overlaps with the rest of backward.
  void gradients_ready(Index begin, Index end) {
    if (!alone_) device_.finish_late_sums();
    add_shard(shard_, begin, end);
    if (shard_ + 1 < shards_) return;
    if constexpr (std::is_same_v<Accum<T>, float>) sums_->begin_sum(gradients() + begin, end - begin);
  }
  // Called after the last shard: gradients() then contains the sum over all shards and processes.
  void finish_sums() {
    if constexpr (std::is_same_v<Accum<T>, float>) sums_->finish_sums();
  }

  // Adds shards as a balanced binary tree. A sum waits for the sum of as many later shards, as in a binary counter: the
  // sum of shards 4 and 5 waits for 6 and 7, and the sum of 0 to 3 waits for 4 to 7.
  void add_shard(Index shard, Index begin, Index end) {
    Accum<T>* const gradient = gradients() + begin;
    const Index count = end - begin;
    Index level = 0;
    for (; shard >> level & 1; ++level) {
      add<Device, Accum<T>>(device_, gradient, partial_sum(level) + begin, gradient, count);
    }
    if (shard + 1 == shards_) return;
    device_.copy(partial_sum(level) + begin, gradient, count);
    device_.set_zero(gradient, count);
  }

  // Adds the size of `count` weights to the memory of a network that is not constructed.
  static void count_memory(NetworkMemory& memory, Index count, const NetworkCapacity& capacity) {
    memory.weights = count;
    memory.weight_bytes = bytes_of<T>(count);
    if (!capacity.training) return;
    memory.gradient_bytes = bytes_of<Accum<T>>(count) + partial_sum_bytes(count, capacity);
    if (narrow) memory.weight_bytes += bytes_of<Accum<T>>(count);
  }

 private:
  // Sum of 2^level shards.
  Accum<T>* partial_sum(Index level) {
    const std::size_t begin = static_cast<std::size_t>(level) * bytes_of<Accum<T>>(count_);
    return reinterpret_cast<Accum<T>*>(partial_sums_.as<std::byte>() + begin);
  }
  static std::size_t partial_sum_bytes(Index count, const NetworkCapacity& capacity) {
    return static_cast<std::size_t>(capacity.partial_sums()) * bytes_of<Accum<T>>(count);
  }

  Device& device_;
  Index count_, front_count_, shards_, shard_ = 0;
  bool alone_;  // true: one shard and one process, so gradients are not added to others
  DeviceMemory values_, masters_, gradients_, partial_sums_;
  std::unique_ptr<typename Device::Sums> sums_;  // over processes; null: no training
};

}  // namespace abh
