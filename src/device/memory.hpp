#pragma once

#include <cstddef>
#include <vector>

#include "base/types.hpp"

namespace abh {

// Where a device's memory comes from. allocate throws Error when there is not enough.
struct MemorySource {
  void* (*allocate)(std::size_t bytes);  // aligned to 64 bytes, uninitialised
  void (*release)(void* memory);
  bool each_take = false;  // a Workspace asks for every take by itself, and gives it back when its scope ends
};

MemorySource host_memory();

// Memory of the devices that share it with the host: host_memory(), or what stands in its place from now on. The tests
// put red zones around everything (tests/harness/red_zones.hpp).
MemorySource memory_of_host_devices();
void replace_memory_of_host_devices(MemorySource source);

// Addresses without memory, to be counted: every allocation has its own, and whoever reads or writes there is stopped
// by the machine. allocate throws Error beyond what any machine can address. Given back by the thread that asked for
// them.
MemorySource no_memory();

// Memory of a device, given back at the end.
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

// Scratch memory of a device, taken and given back in stack order. It grows in the first step and is only reused after
// that.
class Workspace {
 public:
  explicit Workspace(MemorySource source) : source_(source) {}
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  // Everything taken through a Scope is given back when it ends.
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

  // Says that about `bytes` will be in use at one time: the next piece of memory that is needed is as large, so that
  // nothing is lost at the ends of smaller ones.
  void expect(std::size_t bytes) { expected_ = bytes; }

  // Most bytes that were in use at one time.
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

// Copies of a device that shares one memory with the host; it has a copy() of its own.
template <class Device>
struct SharesHostMemory {
  using Scope = Workspace::Scope;
  using Sums = HostSums;  // of the gradients of several processes

  // Work beside the device's own, on a GPU (cuda/gpu.hpp): here it is done when it is asked for.
  class SideStream {
   public:
    static constexpr bool runs_beside = false;
    explicit SideStream(Device& device) : device_(device) {}
    Device& fork() const { return device_; }
    void join() const {}

   private:
    Device& device_;
  };

  // Layers that follow each other do so here too; a GPU may do them in one sweep.
  static constexpr bool joins_layers = false;

  // Sums over rows are done where they are made; those of a GPU may wait (cuda/gpu.hpp).
  class DeferredReductions {
   public:
    explicit DeferredReductions(Device&) {}
    void finish() {}
  };
  void finish_late_sums() {}

  // Most bytes of scratch memory that were in use at one time; and that it will be as much as on another device.
  std::size_t scratch_peak() const { return static_cast<const Device*>(this)->workspace.peak(); }
  void expect_scratch_of(const Device& other) { static_cast<Device*>(this)->workspace.expect(other.scratch_peak()); }

  // Work that is done many times over the same memory; a GPU records it (cuda/gpu.hpp).
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
