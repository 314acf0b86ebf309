// Level 4: tensor cores. A warp has 16 queries as a matrix in registers. One product computes the scores, a second one
// the weighted values. The lane that holds a score uses its weight as an operand, without any exchange between lanes.

#include "cuda/gemm/tensor_core.hpp"
#include "docs/kernels/ladder.hpp"

namespace abh {
inline namespace ABH_BACKEND {

namespace {

constexpr int K = attention_channels, rows = 16;

struct alignas(16) Tile {
  bf16 key[rows][K], value[rows][K];
};
// Index of half i / 8 of a row. Four rows are 32 words, so the next four rows have their halves in the other order.
__device__ __forceinline__ int place(int row, int i) { return (i / 8 ^ row / 4 % 2) * 8; }

struct alignas(16) Eight {
  bf16 x[8];
};

// Half of a row, zeros after the last position.
__device__ __forceinline__ Eight half_of_row(const bf16* from_sk, int s, int C, int k) {
  if (s >= C) return Eight{};
  require_aligned(from_sk + s * K + k, sizeof(Eight));
  return *reinterpret_cast<const Eight*>(from_sk + s * K + k);
}
__device__ __forceinline__ void store_half(bf16* to, const Eight& half) {
  require_aligned(to, sizeof(Eight));
  *reinterpret_cast<Eight*>(to) = half;
}

// Sum or maximum of a row of scores, which four neighbouring lanes hold.
__device__ __forceinline__ float row_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(whole_warp_mask, x, 1));
  return fmaxf(x, __shfl_xor_sync(whole_warp_mask, x, 2));
}
__device__ __forceinline__ float row_sum(float x) {
  x += __shfl_xor_sync(whole_warp_mask, x, 1);
  return x + __shfl_xor_sync(whole_warp_mask, x, 2);
}

// Block (b, i): queries 16 i ... 16 i + 15 of head b. Lane l holds of the rows l / 4 and l / 4 + 8 the columns
// 2 (l % 4), the next one, and the two columns 8 later.
__global__ void forward_kernel(AttentionOf<bf16> a) {
  auto& tile = shared_memory<Tile>();
  const int lane = int(threadIdx.x), first = int(blockIdx.x) * a.C, first_c = int(blockIdx.y) * rows;
  const int row = lane / 2, half = lane % 2 * 8;
  const bf16 *key_sk = a.key_bsk + first * K, *value_sk = a.value_bsk + first * K;
  store_half(&tile.key[row][place(row, half)], half_of_row(a.query_bck + first * K, first_c + row, a.C, half));
  __syncwarp();
  std::uint32_t query[4];
  load_matrices(query, &tile.key[lane % 16][place(lane % 16, lane / 16 * 8)]);
  float out[2][4] = {}, max[2] = {-infinity, -infinity}, sum[2] = {};
  for (int first_s = 0; first_s <= first_c; first_s += rows) {
    __syncwarp();
    store_half(&tile.key[row][place(row, half)], half_of_row(key_sk, first_s + row, a.C, half));
    store_half(&tile.value[row][place(row, half)], half_of_row(value_sk, first_s + row, a.C, half));
    __syncwarp();
    std::uint32_t key[4], value[4];
    const int key_row = lane % 8 + lane / 16 * 8;
    load_matrices(key, &tile.key[key_row][place(key_row, lane / 8 % 2 * 8)]);
    load_matrices_transposed(value, &tile.value[lane % 16][place(lane % 16, lane / 16 * 8)]);
    float score[2][4] = {};
    mma(score[0], query, {key[0], key[1]});  // (attention.1)
    mma(score[1], query, {key[2], key[3]});
    float new_max[2] = {max[0], max[1]};
    for (int j = 0; j < 8; ++j) {
      const int s = first_s + j / 4 * 8 + lane % 4 * 2 + j % 2, c = first_c + lane / 4 + j % 4 / 2 * 8;
      float& one = score[j / 4][j % 4];
      one = s <= c ? 0.25f * one : -infinity;
      new_max[j % 4 / 2] = fmaxf(new_max[j % 4 / 2], one);
    }
    for (int r = 0; r < 2; ++r) {
      new_max[r] = row_max(new_max[r]);
      const float kept = expf(max[r] - new_max[r]);
      float more = 0;
      for (int j = 0; j < 4; ++j) {
        float& one = score[j / 2][2 * r + j % 2];
        one = expf(one - new_max[r]);
        more += one;
        out[j / 2][2 * r + j % 2] *= kept;
      }
      sum[r] = sum[r] * kept + row_sum(more);  // (attention.2)
      max[r] = new_max[r];
    }
    const std::uint32_t weight[4] = {pack_bf16(score[0][0], score[0][1]), pack_bf16(score[0][2], score[0][3]),
                                     pack_bf16(score[1][0], score[1][1]), pack_bf16(score[1][2], score[1][3])};
    mma(out[0], weight, {value[0], value[1]});  // (attention.3), without the division
    mma(out[1], weight, {value[2], value[3]});
  }
  for (int j = 0; j < 8; ++j) {
    const int c = first_c + lane / 4 + j % 4 / 2 * 8, k = j / 4 * 8 + lane % 4 * 2 + j % 2;
    if (c < a.C) a.out_bck[(first + c) * K + k] = out[j / 4][j % 4] / sum[j % 4 / 2];
  }
}

}  // namespace

void attention_4(const AttentionOf<bf16>& a, cudaStream_t stream) {
  start(forward_kernel, dim3(unsigned(a.B), blocks_of(a.C, rows)), 32, stream, a);
}

}  // namespace ABH_BACKEND
}  // namespace abh
