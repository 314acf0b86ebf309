#pragma once

// How sums over rows end of which many blocks made parts.

#include <vector>

#include "cuda/platform.hpp"

namespace abh {
inline namespace ABH_BACKEND {

// A block of 32 x 32 threads adds up 32 neighbouring sums, or of fewer rows where there are fewer parts: thread (x, y)
// takes every 32nd part of one sum, eight of which are on their way at a time, and the 32 results are then added in
// order.
inline constexpr int most_part_rows = 32;
inline unsigned part_rows(Index parts) {
  return static_cast<unsigned>(parts < 1 ? 1 : parts < most_part_rows ? parts : most_part_rows);
}
struct PartRows {
  float sum[most_part_rows][32];
};

// The sum over p of `parts` numbers, `stride` apart, for the threads with threadIdx.y = 0. All threads of a block must
// call it, as many in y as there are rows; those to whom no sum belongs say so.
__device__ __forceinline__ float sum_of_parts(const float* part_p, int parts, Index stride, int rows, bool exists) {
  auto& shared = shared_memory<PartRows>();
  float sum = 0;
  if (exists && int(threadIdx.y) < rows) {
    ABH_UNROLL(8)
    for (int p = int(threadIdx.y); p < parts; p += rows) sum += part_p[p * stride];
  }
  shared.sum[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  for (int y = 1; y < rows; ++y) sum += shared.sum[y][threadIdx.x];
  return sum;
}

// Memory for parts: until the sums that wait are done, or where none wait until `scratch` ends.
float* take_parts(Gpu& device, Gpu::Scope& scratch, Index count);

// Does such a sum, or where they wait lets it wait too. Reads the parts once.
void add_partial_sums(Gpu& device, const PartialSums& sums);

// Does several, as many in one kernel as it can be told of.
void do_partial_sums(Gpu& device, const std::vector<PartialSums>& all);

}  // namespace ABH_BACKEND
}  // namespace abh
