// Level 3: a tile in registers. A thread computes 4 x 4 outputs: it reads 8 numbers from shared memory for 16 products.
// Level 2 reads two numbers per product.

#include "docs/kernels/ladder.hpp"

namespace abh {
inline namespace ABH_BACKEND {

namespace {

constexpr int side = 32, across = 8, each = 4, depth = 16;  // 8 x 8 threads with 4 x 4 outputs each

struct Tiles {
  float in[side][depth], weight[side][depth];
};

// Thread (x, y): rows y, y + 8, ... and outputs x, x + 8, ... of the square of its block.
__global__ void product_kernel(Product a) {
  auto& tiles = shared_memory<Tiles>();
  const int x = int(threadIdx.x) % across, y = int(threadIdx.x) / across;
  const int first_o = int(blockIdx.x) * side, first_bc = int(blockIdx.y) * side;
  float sum[each][each] = {};
  for (int first_i = 0; first_i < a.I; first_i += depth) {
    for (int item = int(threadIdx.x); item < side * depth; item += across * across) {
      const int row = item / depth, i = item % depth;
      const bool there = first_i + i < a.I;
      tiles.in[row][i] = there && first_bc + row < a.BC ? a.in_bci[(first_bc + row) * a.I + first_i + i] : 0;
      tiles.weight[row][i] = there && first_o + row < a.O ? a.weight_oi[(first_o + row) * a.I + first_i + i] : 0;
    }
    __syncthreads();
    for (int i = 0; i < depth; ++i) {
      float in[each], weight[each];
      for (int r = 0; r < each; ++r) in[r] = tiles.in[y + across * r][i];
      for (int s = 0; s < each; ++s) weight[s] = tiles.weight[x + across * s][i];
      for (int r = 0; r < each; ++r) {
        for (int s = 0; s < each; ++s) sum[r][s] += in[r] * weight[s];  // (linear.1)
      }
    }
    __syncthreads();
  }
  for (int r = 0; r < each; ++r) {
    for (int s = 0; s < each; ++s) {
      const int bc = first_bc + y + across * r, o = first_o + x + across * s;
      if (bc < a.BC && o < a.O) a.out_bco[bc * a.O + o] = sum[r][s];
    }
  }
}

}  // namespace

void product_3(const Product& a, cudaStream_t stream) {
  start(product_kernel, dim3(blocks_of(a.O, side), blocks_of(a.BC, side)), across * across, stream, a);
}

}  // namespace ABH_BACKEND
}  // namespace abh
