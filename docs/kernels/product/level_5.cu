// Level 5: asynchronous copies. While the threads multiply one pair of tiles, cp.async copies the next pair to shared
// memory, without registers. Two pairs of tiles alternate.

#include "cuda/gemm/tensor_core.hpp"
#include "docs/kernels/ladder.hpp"

namespace abh {
inline namespace ABH_BACKEND {

namespace {

constexpr int side = 32, across = 8, each = 4, depth = 16;

struct Tiles {
  float in[2][side][depth], weight[2][side][depth];
};

// Index of pack i / 4 of a row. Two rows are 32 numbers, so every other row needs another order of its packs.
__device__ __forceinline__ int place(int row, int i) { return (i / 4 ^ row / 2 % 4) * 4; }

// Starts the copy of the tiles at first_i.
__device__ __forceinline__ void begin_copy(Tiles& tiles, int turn, const Product& a, int first_bc, int first_o,
                                           int first_i) {
  for (int item = int(threadIdx.x); item < side * depth / 4; item += across * across) {
    const int row = item / (depth / 4), i = item % (depth / 4) * 4, bc = first_bc + row, o = first_o + row;
    const bool there = first_i + i < a.I, in_there = there && bc < a.BC, weight_there = there && o < a.O;
    copy_async(&tiles.in[turn][row][place(row, i)], a.in_bci + (in_there ? bc * a.I + first_i + i : 0), in_there);
    copy_async(&tiles.weight[turn][row][place(row, i)], a.weight_oi + (weight_there ? o * a.I + first_i + i : 0),
               weight_there);
  }
  copy_async_commit();
}

// Thread (x, y): rows y, y + 8, ... and outputs x, x + 8, ... of the square of its block.
__global__ void product_kernel(Product a) {
  auto& tiles = shared_memory<Tiles>();
  const int x = int(threadIdx.x) % across, y = int(threadIdx.x) / across;
  const int first_o = int(blockIdx.x) * side, first_bc = int(blockIdx.y) * side;
  float sum[each][each] = {};
  begin_copy(tiles, 0, a, first_bc, first_o, 0);
  for (int first_i = 0, turn = 0; first_i < a.I; first_i += depth, turn = 1 - turn) {
    if (first_i + depth < a.I) begin_copy(tiles, 1 - turn, a, first_bc, first_o, first_i + depth);
    if (first_i + depth < a.I) {
      copy_async_wait<1>();  // all except the copy that has just started
    } else {
      copy_async_wait<0>();
    }
    __syncthreads();
    for (int i = 0; i < depth; i += 4) {
      Four in[each], weight[each];
      for (int r = 0; r < each; ++r) in[r] = load_four(&tiles.in[turn][y + across * r][place(y + across * r, i)]);
      for (int s = 0; s < each; ++s)
        weight[s] = load_four(&tiles.weight[turn][x + across * s][place(x + across * s, i)]);
      for (int r = 0; r < each; ++r) {
        for (int s = 0; s < each; ++s) {
          for (int j = 0; j < 4; ++j) sum[r][s] += in[r].x[j] * weight[s].x[j];  // (linear.1)
        }
      }
    }
    __syncthreads();  // before the next copy overwrites these tiles
  }
  for (int r = 0; r < each; ++r) {
    for (int s = 0; s < each; ++s) {
      const int bc = first_bc + y + across * r, o = first_o + x + across * s;
      if (bc < a.BC && o < a.O) a.out_bco[bc * a.O + o] = sum[r][s];
    }
  }
}

}  // namespace

void product_5(const Product& a, cudaStream_t stream) {
  start(product_kernel, dim3(blocks_of(a.O, side), blocks_of(a.BC, side)), across * across, stream, a);
}

}  // namespace ABH_BACKEND
}  // namespace abh
