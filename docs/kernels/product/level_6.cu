// Level 6: tensor cores. The numbers are bf16, and a warp multiplies 16 x 16 by 16 x 8 numbers with one instruction.
// cuda/gemm/tensor_core.hpp describes which lane holds which number of a matrix.

#include "cuda/gemm/tensor_core.hpp"
#include "docs/kernels/ladder.hpp"

namespace abh {
inline namespace ABH_BACKEND {

namespace {

constexpr int side = 32, depth = 16;

struct alignas(16) Tiles {
  bf16 in[side][depth], weight[side][depth];
};

// Index of half i / 8 of a row. Four rows are 32 words, so the next four rows have their halves in the other order.
__device__ __forceinline__ int place(int row, int i) { return (i / 8 ^ row / 4 % 2) * 8; }

struct alignas(16) Eight {
  bf16 x[8];
};
// Eight numbers of a row of a matrix, zeros after its end.
__device__ __forceinline__ void copy_eight(bf16* to, const bf16* matrix, int row, int rows, int i, int I) {
  require_aligned(to, sizeof(Eight));
  const bf16* from = matrix + row * I + i;
  if (row < rows && i < I) require_aligned(from, sizeof(Eight));
  *reinterpret_cast<Eight*>(to) = row < rows && i < I ? *reinterpret_cast<const Eight*>(from) : Eight{};
}

// Warp w of two: rows 16 w ... 16 w + 15 of the square of its block, in four pieces of 16 x 8 outputs.
__global__ void product_kernel(ProductOf<bf16> a) {
  auto& tiles = shared_memory<Tiles>();
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  const int first_o = int(blockIdx.x) * side, first_bc = int(blockIdx.y) * side;
  float sum[4][4] = {};
  for (int first_i = 0; first_i < a.I; first_i += depth) {
    const int row = int(threadIdx.x) / 2, i = int(threadIdx.x) % 2 * 8;
    copy_eight(&tiles.in[row][place(row, i)], a.in_bci, first_bc + row, a.BC, first_i + i, a.I);
    copy_eight(&tiles.weight[row][place(row, i)], a.weight_oi, first_o + row, a.O, first_i + i, a.I);
    __syncthreads();
    std::uint32_t in[4];  // 16 x 16: two matrices of 8 x 8 one below the other, then the two to the right of them
    const int in_row = 16 * warp + lane % 16;
    load_matrices(in, &tiles.in[in_row][place(in_row, lane / 16 * 8)]);
    for (int half = 0; half < 2; ++half) {
      std::uint32_t weight[4];  // two pieces of 8 outputs, each in two matrices of 8 x 8
      const int weight_row = 16 * half + lane % 8 + lane / 16 * 8;
      load_matrices(weight, &tiles.weight[weight_row][place(weight_row, lane / 8 % 2 * 8)]);
      mma(sum[2 * half], in, {weight[0], weight[1]});      // (linear.1)
      mma(sum[2 * half + 1], in, {weight[2], weight[3]});  // (linear.1)
    }
    __syncthreads();
  }
  for (int piece = 0; piece < 4; ++piece) {
    for (int j = 0; j < 4; ++j) {
      const int bc = first_bc + 16 * warp + lane / 4 + j / 2 * 8, o = first_o + 8 * piece + lane % 4 * 2 + j % 2;
      if (bc < a.BC && o < a.O) a.out_bco[bc * a.O + o] = sum[piece][j];
    }
  }
}

}  // namespace

void product_6(const ProductOf<bf16>& a, cudaStream_t stream) {
  start(product_kernel, dim3(blocks_of(a.O, side), blocks_of(a.BC, side)), 64, stream, a);
}

}  // namespace ABH_BACKEND
}  // namespace abh
