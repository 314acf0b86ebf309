#pragma once

// Emulates instructions of Hopper GPUs for cuda/gemm/hopper.hpp: barriers in shared memory (mbarrier), loads of tiles
// by the copy engine (TMA) and products of four warps (wgmma). See docs/emulator.md.

#include <cstdint>

#include "cuda/emulator/emulator.hpp"

namespace emulator {

// A matrix of 2-byte numbers in global memory, and the box of it that one load copies. `swizzle` is the width of the
// swizzled rows in bytes, 0 for none.
struct TensorMap {
  const void* matrix;
  std::int64_t rows, columns, row_bytes;
  int box_rows, box_columns, swizzle;
};

// State of the accumulators of one thread.
struct AccumulatorState {
  unsigned pending = 0;  // products that have not been waited for
  bool fenced = false;   // since the last access by the thread
};

namespace detail {

void mbarrier_init(void* barrier, unsigned arrivals, const char* file, int line);
void mbarrier_arrive(void* barrier, unsigned expected_bytes, const char* file, int line);
void mbarrier_wait(const void* barrier, unsigned parity, const char* file, int line);
void load_tile(void* tile, const TensorMap& map, int row, int column, const void* barrier, const char* file, int line);

std::uint32_t shared_address(const void* memory);
void wgmma(float* d, int columns, AccumulatorState& state, std::uint64_t a, std::uint64_t b, bool accumulate,
           const char* file, int line);
void wgmma_fence(const char* file, int line);
void wgmma_commit(const char* file, int line);
void wgmma_wait(unsigned groups_left, const char* file, int line);
[[noreturn]] void refuse_accumulator();

}  // namespace detail
}  // namespace emulator
