#pragma once

#include <cstddef>
#include <vector>

#include "base/types.hpp"

namespace abh {

// Allocator of the memory of a device. allocate throws Error if there is not enough memory.
struct MemorySource {
  void* (*allocate)(std::size_t bytes);  // aligned to 64 bytes, uninitialised
  void (*release)(void* memory);
  bool each_take = false;  // true: a Workspace allocates every take separately and frees it with its scope
};

MemorySource host_memory();

// Memory of devices that share the memory of the host: host_memory(), or a replacement. Tests add red zones around each
// allocation (tests/harness/red_zones.hpp).
MemorySource memory_of_host_devices();
void replace_memory_of_host_devices(MemorySource source);

// Unique addresses without memory, for dry runs; every access is a fault. allocate throws Error if the total exceeds
// the address space. The allocating thread must also release them.
MemorySource no_memory();

// Memory of a device, released by the destructor.
class DeviceMemory {
 public:
  DeviceMemory(MemorySource source, std::size_t bytes)
      : source_(source), memory_(bytes ? static_cast<std::byte*>(source.allocate(bytes)) : nullptr) {}
  ~DeviceMemory() {
    if (memory_) source_.release(memory_);
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(memory_);
  }

 private:
  MemorySource source_;
  std::byte* memory_;
};

// Scratch memory of a device, allocated and released in stack order. It grows in the first step and is then reused.
class Workspace {
 public:
  explicit Workspace(MemorySource source) : source_(source) {}
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  // Releases the memory of all takes through this Scope in its destructor.
  class Scope {
   public:
    explicit Scope(Workspace& workspace)
        : workspace_(workspace), chunk_(workspace.chunk_), used_(workspace.used_), in_use_(workspace.in_use_) {}
    ~Scope() { workspace_.give_back(chunk_, used_, in_use_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

    // Uninitialised memory for `count` elements, aligned to 64 bytes.
    template <class T>
    T* take(Index count) {
      return static_cast<T*>(workspace_.take(static_cast<std::size_t>(count) * sizeof(T)));
    }

   private:
    Workspace& workspace_;
    std::size_t chunk_, used_, in_use_;
  };

  // Announces a peak of about `bytes`. The next allocation is at least this large, so no memory is lost at the ends of
  // smaller allocations.
  void expect(std::size_t bytes) { expected_ = bytes; }

  // Largest number of bytes in use at one time.
  std::size_t peak() const { return peak_; }

 private:
  struct Chunk {
    std::byte* memory;
    std::size_t size;
  };

  void* take(std::size_t bytes);
  void give_back(std::size_t chunk, std::size_t used, std::size_t in_use);

  MemorySource source_;
  std::vector<Chunk> chunks_;
  std::size_t chunk_ = 0, used_ = 0, in_use_ = 0, peak_ = 0, expected_ = 0;
};

class HostSums;  // device/processes.hpp

// Base class of a device that shares the memory of the host. The device itself has copy().
template <class Device>
struct SharesHostMemory {
  using Scope = Workspace::Scope;
  using Sums = HostSums;  // gradient sums over processes

  // Second stream of a GPU (cuda/gpu.hpp); here work is done immediately.
  class SideStream {
   public:
    static constexpr bool runs_beside = false;
    explicit SideStream(Device& device) : device_(device) {}
    Device& fork() const { return device_; }
    void join() const {}

   private:
    Device& device_;
  };

  // false: layers are computed one after the other; a GPU fuses some of them.
  static constexpr bool joins_layers = false;

  // Sums over rows are computed immediately; a GPU may defer them (cuda/gpu.hpp).
  class DeferredReductions {
   public:
    explicit DeferredReductions(Device&) {}
    void finish() {}
  };
  void finish_late_sums() {}

  // Peak of the scratch memory; expects the peak of another device, measured in a dry run.
  std::size_t scratch_peak() const { return static_cast<const Device*>(this)->workspace.peak(); }
  void expect_scratch_of(const Device& other) { static_cast<Device*>(this)->workspace.expect(other.scratch_peak()); }

  // Work that is repeated on the same memory; a GPU captures it as a CUDA graph (cuda/gpu.hpp).
  struct CapturedGraph {
    template <class Body>
    void run(Device&, const Body& body) {
      body();
    }
  };

  template <class T>
  void copy_from_host(T* to, const T* from, Index count) {
    static_cast<Device*>(this)->copy(to, from, count);
  }
  template <class T>
  void copy_from_host_later(T* to, const T* from, Index count) {
    copy_from_host(to, from, count);
  }
  template <class T>
  void copy_to_host(T* to, const T* from, Index count) {
    copy_from_host(to, from, count);
  }
};

}  // namespace abh
