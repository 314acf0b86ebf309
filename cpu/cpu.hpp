#pragma once

#include "memory.hpp"
#include "threads.hpp"

namespace abh {

// Instruction sets that the layers in cpu/ are compiled for, each in object files of its own; the widest that the
// machine has is chosen when a program starts. `scalar` computes with lanes of width 1: the reference of the tests.
enum class Isa { scalar, baseline, avx2, avx512 };

// A device is a template argument of every layer, block and network: the CPU with one of its instruction sets.
template <Isa isa>
struct CpuDevice {
  using Scope = Workspace::Scope;

  // Work that is done many times over the same memory; a GPU records it (cuda/gpu.hpp).
  struct Recording {
    template <class Body>
    void run(CpuDevice&, const Body& body) {
      body();
    }
  };

  explicit CpuDevice(Index thread_count) : threads(thread_count) {}

  MemorySource memory() const { return host_memory(); }

  template <class T>
  void set_zero(T* to, Index count);
  template <class T>
  void copy(T* to, const T* from, Index count) {
    for (Index i = 0; i < count; ++i) to[i] = from[i];
  }
  // The same between the device and the host; on the CPU they share one memory.
  template <class T>
  void copy_from_host(T* to, const T* from, Index count) {
    copy(to, from, count);
  }
  template <class T>
  void copy_to_host(T* to, const T* from, Index count) {
    copy(to, from, count);
  }

  Threads threads;
  Workspace workspace{host_memory()};
};

// In place of the standard library's templates, which these files do without (cpu/lanes.hpp).
constexpr Index lesser(Index a, Index b) { return a < b ? a : b; }
constexpr Index greater(Index a, Index b) { return a < b ? b : a; }

// How many blocks of `block` cover `count`.
constexpr Index blocks_of(Index count, Index block) { return (count + block - 1) / block; }

// Runs body(task, worker) for every task in [0, tasks) on the device's team. What body computes must depend on the task
// alone: never cut a sum by the number of workers (`worker` is there to find scratch memory).
template <Isa isa, class Body>
void parallel_for(CpuDevice<isa>& device, Index tasks, const Body& body) {
  device.threads.run(
      [](void* context, Index task, Index worker) { (*static_cast<const Body*>(context))(task, worker); },
      const_cast<void*>(static_cast<const void*>(&body)), tasks);
}

template <Isa isa>
template <class T>
void CpuDevice<isa>::set_zero(T* to, Index count) {
  constexpr Index elements_per_task = 1 << 16;
  parallel_for(*this, blocks_of(count, elements_per_task), [=](Index task, Index) {
    const Index end = lesser((task + 1) * elements_per_task, count);
    for (Index i = task * elements_per_task; i < end; ++i) to[i] = T(0);
  });
}

}  // namespace abh
