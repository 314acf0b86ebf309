// Level 4: 16 bytes per lane, in a layout without bank conflicts. Both memories are accessed with four numbers per
// lane. The order of the packs differs from row to row, so that the eight lanes of a phase access all 32 banks.

#include "docs/kernels/ladder.hpp"

namespace abh {
inline namespace ABH_BACKEND {

namespace {

constexpr int side = 32, across = 8, each = 4, depth = 16;

struct Tiles {
  float in[side][depth], weight[side][depth];
};

// Index of pack i / 4 of a row. Two rows are 32 numbers, so every other row needs another order of its packs.
__device__ __forceinline__ int place(int row, int i) { return (i / 4 ^ row / 2 % 4) * 4; }

// Four numbers of a row of a matrix, zeros after its end.
__device__ __forceinline__ Four four_of(const float* matrix, int row, int rows, int i, int I) {
  return row < rows && i < I ? load_four(matrix + row * I + i) : Four{};
}

// Thread (x, y): rows y, y + 8, ... and outputs x, x + 8, ... of the square of its block.
__global__ void product_kernel(Product a) {
  auto& tiles = shared_memory<Tiles>();
  const int x = int(threadIdx.x) % across, y = int(threadIdx.x) / across;
  const int first_o = int(blockIdx.x) * side, first_bc = int(blockIdx.y) * side;
  float sum[each][each] = {};
  for (int first_i = 0; first_i < a.I; first_i += depth) {
    for (int item = int(threadIdx.x); item < side * depth / 4; item += across * across) {
      const int row = item / (depth / 4), i = item % (depth / 4) * 4;
      store_four(&tiles.in[row][place(row, i)], four_of(a.in_bci, first_bc + row, a.BC, first_i + i, a.I));
      store_four(&tiles.weight[row][place(row, i)], four_of(a.weight_oi, first_o + row, a.O, first_i + i, a.I));
    }
    __syncthreads();
    for (int i = 0; i < depth; i += 4) {
      Four in[each], weight[each];
      for (int r = 0; r < each; ++r) in[r] = load_four(&tiles.in[y + across * r][place(y + across * r, i)]);
      for (int s = 0; s < each; ++s) weight[s] = load_four(&tiles.weight[x + across * s][place(x + across * s, i)]);
      for (int r = 0; r < each; ++r) {
        for (int s = 0; s < each; ++s) {
          for (int j = 0; j < 4; ++j) sum[r][s] += in[r].x[j] * weight[s].x[j];  // (linear.1)
        }
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

void product_4(const Product& a, cudaStream_t stream) {
  start(product_kernel, dim3(blocks_of(a.O, side), blocks_of(a.BC, side)), across * across, stream, a);
}

}  // namespace ABH_BACKEND
}  // namespace abh
