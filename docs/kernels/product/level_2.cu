// Level 2: tiles in shared memory. A block reads 16 x 16 numbers of the input and of the weight once and uses each
// number 16 times.

#include "docs/kernels/ladder.hpp"

namespace abh {
inline namespace ABH_BACKEND {

namespace {

constexpr int side = 16;

// Rows of 17 numbers: the 16 rows that half a warp reads at a time begin in 16 different banks.
struct Tiles {
  float in[side][side + 1], weight[side][side + 1];
};

// Thread (x, y) of block (i, j): output o = 16 i + x of row bc = 16 j + y.
__global__ void product_kernel(Product a) {
  auto& tiles = shared_memory<Tiles>();
  const int x = int(threadIdx.x), y = int(threadIdx.y);
  const int first_o = int(blockIdx.x) * side, first_bc = int(blockIdx.y) * side;
  float sum = 0;
  for (int first_i = 0; first_i < a.I; first_i += side) {
    const bool there = first_i + x < a.I;
    tiles.in[y][x] = there && first_bc + y < a.BC ? a.in_bci[(first_bc + y) * a.I + first_i + x] : 0;
    tiles.weight[y][x] = there && first_o + y < a.O ? a.weight_oi[(first_o + y) * a.I + first_i + x] : 0;
    __syncthreads();
    for (int i = 0; i < side; ++i) sum += tiles.in[y][i] * tiles.weight[x][i];  // (linear.1)
    __syncthreads();
  }
  if (first_o + x < a.O && first_bc + y < a.BC) a.out_bco[(first_bc + y) * a.O + first_o + x] = sum;
}

}  // namespace

void product_2(const Product& a, cudaStream_t stream) {
  start(product_kernel, dim3(blocks_of(a.O, side), blocks_of(a.BC, side)), dim3(side, side), stream, a);
}

}  // namespace ABH_BACKEND
}  // namespace abh
