// Level 1: one thread per output. Each thread reads a row of the input and a row of the weight, 4 bytes at a time.

#include "docs/kernels/ladder.hpp"

namespace abh {
inline namespace ABH_BACKEND {

namespace {

constexpr int side = 16;  // rows and columns of the outputs of a block

// Thread (x, y) of block (i, j): output o = 16 i + x of row bc = 16 j + y.
__global__ void product_kernel(Product a) {
  const int o = int(blockIdx.x) * side + int(threadIdx.x), bc = int(blockIdx.y) * side + int(threadIdx.y);
  if (o >= a.O || bc >= a.BC) return;
  float sum = 0;
  for (int i = 0; i < a.I; ++i) sum += a.in_bci[bc * a.I + i] * a.weight_oi[o * a.I + i];
  a.out_bco[bc * a.O + o] = sum;  // (linear.1)
}

}  // namespace

void product_1(const Product& a, cudaStream_t stream) {
  start(product_kernel, dim3(blocks_of(a.O, side), blocks_of(a.BC, side)), dim3(side, side), stream, a);
}

}  // namespace ABH_BACKEND
}  // namespace abh
