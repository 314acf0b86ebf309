#pragma once

// Sums over rows, whose parts were computed by many blocks.

#include <vector>

#include "cuda/platform.hpp"

namespace abh {
inline namespace ABH_BACKEND {

// A block of 32 x 32 threads adds 32 adjacent sums (fewer thread rows if there are fewer parts). Thread (x, y) adds
// every 32nd part of one sum, with eight loads in flight. The 32 results are then added in order.
inline constexpr int most_part_rows = 32;
inline unsigned part_rows(Index parts) {
  return static_cast<unsigned>(parts < 1 ? 1 : parts < most_part_rows ? parts : most_part_rows);
}
struct PartRows {
  float sum[most_part_rows][32];
};

// Sum over p of `parts` numbers with this stride, returned to threads with threadIdx.y = 0. Must be called by all
// threads of a block, with `rows` threads in y; `exists` is false for threads without a sum.
__device__ __forceinline__ float sum_of_parts(const float* part_p, int parts, Index stride, int rows, bool exists) {
  auto& shared = shared_memory<PartRows>();
  float sum = 0;
  if (exists && int(threadIdx.y) < rows) {
    ABH_UNROLL(8)
    for (int p = int(threadIdx.y); p < parts; p += rows) sum += part_p[p * stride];
  }
  shared.sum[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0) return 0;
  ABH_UNROLL(8)
  for (int y = 1; y < rows; ++y) sum += shared.sum[y][threadIdx.x];
  return sum;
}

// Memory for parts: until the deferred sums are done, or without deferral until `scratch` ends.
float* take_parts(Gpu& device, Gpu::Scope& scratch, Index count);

// Computes such a sum, or defers it. Reads the parts once.
void add_partial_sums(Gpu& device, const PartialSums& sums);

// Computes several sums, as many per kernel as its arguments can hold.
void do_partial_sums(Gpu& device, const std::vector<PartialSums>& all);

}  // namespace ABH_BACKEND
}  // namespace abh
