// A transposition with conflicts: rows of 32 numbers. The 32 numbers of a column lie in one bank, so a warp that reads
// a column needs 32 passes.

#include "docs/kernels/basics.hpp"

namespace abh {
inline namespace ABH_BACKEND {

namespace {

struct Tile {
  float x[32][32];
};

// Warp w takes the rows w, w + 4, ...
__global__ void transpose_kernel(float* out, const float* in) {
  auto& tile = shared_memory<Tile>();
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  for (int row = warp; row < 32; row += 4) tile.x[row][lane] = in[32 * row + lane];
  __syncthreads();
  for (int row = warp; row < 32; row += 4) out[32 * row + lane] = tile.x[lane][row];
}

}  // namespace

void transpose_32(float* out, const float* in, cudaStream_t stream) {
  start(transpose_kernel, 1, 128, stream, out, in);
}

}  // namespace ABH_BACKEND
}  // namespace abh
