#pragma once

#include <cstddef>

#include "base/types.hpp"
#include "device/memory.hpp"

namespace abh {

// Buffer for the inputs and results of a pass: arrays in one host buffer and, with a GPU, in a device buffer of the
// same layout. One asynchronous copy sends the inputs. One copy, which waits, fetches the results. The host buffer is
// pinned memory. Devices that share the memory of the host have one buffer and copy nothing.
template <class Device>
class StagingBuffer {
 public:
  // Range of an array of T in the buffer.
  template <class T>
  struct StagingRange {
    std::size_t begin, count;
    std::size_t end() const { return begin + count * sizeof(T); }
  };
  // Assigns consecutive ranges to arrays.
  class Places {
   public:
    template <class T>
    StagingRange<T> take(Index count) {
      const StagingRange<T> range{end_, static_cast<std::size_t>(count)};
      constexpr std::size_t alignment = 64;
      end_ = (range.end() + alignment - 1) / alignment * alignment;
      return range;
    }
    std::size_t bytes() const { return end_; }

   private:
    std::size_t end_ = 0;
  };

  StagingBuffer(Device& device, const Places& places)
      : device_(device),
        device_memory_(device.memory(), places.bytes()),
        host_memory_(host_source(device), host_bytes(places)) {}

  // Array on the device; array on the host after fetch.
  template <class T>
  T* on_device(const StagingRange<T>& range) const {
    return reinterpret_cast<T*>(device_memory_.template as<std::byte>() + range.begin);
  }
  template <class T>
  const T* on_host(const StagingRange<T>& range) const {
    return reinterpret_cast<const T*>(host_begin() + range.begin);
  }
  // Array on the host, for writing. Waits until the previous transfer has read the buffer.
  template <class T>
  T* to_send(const StagingRange<T>& range) {
    if constexpr (has_twin) {
      if (is_on_its_way_) device_.synchronize();
    }
    is_on_its_way_ = false;
    return reinterpret_cast<T*>(host_begin() + range.begin);
  }

  // Transfer all bytes from `begin` to `end`.
  void send(std::size_t begin, std::size_t end) {
    if constexpr (has_twin) {
      device_.copy_from_host_later(device_memory_.template as<std::byte>() + begin, host_begin() + begin,
                                   static_cast<Index>(end - begin));
    }
    is_on_its_way_ = true;
  }
  void fetch(std::size_t begin, std::size_t end) {
    if constexpr (has_twin) {
      device_.copy_to_host(host_begin() + begin, device_memory_.template as<std::byte>() + begin,
                           static_cast<Index>(end - begin));
    }
    is_on_its_way_ = false;
  }

 private:
  static constexpr bool has_twin = requires(const Device& device) { device.host_memory(); };
  static MemorySource host_source(const Device& device) {
    if constexpr (has_twin) {
      return device.host_memory();
    } else {
      return device.memory();
    }
  }
  static std::size_t host_bytes(const Places& places) { return has_twin ? places.bytes() : 0; }
  std::byte* host_begin() const { return (has_twin ? host_memory_ : device_memory_).template as<std::byte>(); }

  Device& device_;
  DeviceMemory device_memory_, host_memory_;
  bool is_on_its_way_ = false;
};

}  // namespace abh
