#pragma once

#include "device/isa.hpp"
#include "device/memory.hpp"
#include "device/threads.hpp"

namespace abh {

// The device is a template argument of every layer, block and network: the CPU with one of its instruction sets.
template <Isa isa>
struct CpuDevice : SharesHostMemory<CpuDevice<isa>> {
  explicit CpuDevice(Index thread_count, Mode mode = Mode::compute, Isa products = isa)
      : unit(products), threads(thread_count, mode) {}

  // is_dry_run: true if work is only counted (device/mode.hpp). dry_run: a device of the same kind in this mode.
  bool is_dry_run() const { return threads.mode() == Mode::dry_run; }
  CpuDevice dry_run_device() const { return CpuDevice(threads.count(), Mode::dry_run, unit); }

  MemorySource memory() const { return is_dry_run() ? no_memory() : memory_of_host_devices(); }

  template <class T>
  void set_zero(T* to, Index count);
  template <class T>
  void copy(T* to, const T* from, Index count) {
    if (is_dry_run()) return;
    for (Index i = 0; i < count; ++i) to[i] = from[i];
  }

  Isa unit;  // unit for bf16 products: avx512_bf16, amx; otherwise isa
  Threads threads;
  Workspace workspace{memory()};
};

// Replaces templates of the standard library, which these files do not use (cpu/lanes.hpp).
constexpr Index min_of(Index a, Index b) { return a < b ? a : b; }
constexpr Index max_of(Index a, Index b) { return a < b ? b : a; }

// Number of blocks of `block` that cover `count`.
constexpr Index blocks_of(Index count, Index block) { return (count + block - 1) / block; }

// Runs body(task, worker) for every task in [0, tasks) on the device's threads. The result must depend on the task
// alone: never split a sum by the number of workers (`worker` only selects scratch memory).
template <Isa isa, class Body>
void parallel_for(CpuDevice<isa>& device, Index tasks, const Body& body) {
  device.threads.run(
      [](void* context, Index task, Index worker) { (*static_cast<const Body*>(context))(task, worker); },
      const_cast<void*>(static_cast<const void*>(&body)), tasks);
}

// Runs body(begin, end) in parallel for pieces [begin, end) of [0, count); each has `size` elements except the last.
template <Isa isa, class Body>
void parallel_pieces(CpuDevice<isa>& device, Index count, Index size, const Body& body) {
  parallel_for(device, blocks_of(count, size),
               [&](Index task, Index) { body(task * size, min_of(count, (task + 1) * size)); });
}

// Runs body(row) for every row of [0, rows), in parallel, `rows_per_task` consecutive rows per task.
template <Isa isa, class Body>
void parallel_rows(CpuDevice<isa>& device, Index rows, Index rows_per_task, const Body& body) {
  parallel_pieces(device, rows, rows_per_task, [&](Index begin, Index end) {
    for (Index row = begin; row < end; ++row) body(row);
  });
}

// Runs body() on the calling thread, for work with a fixed order over an array, such as a sum over tasks.
template <Isa isa, class Body>
void on_one_thread(CpuDevice<isa>& device, const Body& body) {
  if (!device.is_dry_run()) body();
}

template <Isa isa>
template <class T>
void CpuDevice<isa>::set_zero(T* to, Index count) {
  parallel_pieces(*this, count, 1 << 16, [=](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) to[i] = T(0);
  });
}

}  // namespace abh
