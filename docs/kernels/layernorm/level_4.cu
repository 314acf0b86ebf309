// Level 4: the row stays in registers. It is read once instead of three times. The backward pass reads in and d_out
// once and computes the means and all gradients.

#include "docs/kernels/ladder.hpp"

namespace abh {
inline namespace ABH_BACKEND {

namespace {

constexpr int rows_of_block = 4, most_packs = 4;  // at most 16 channels per lane: rows of up to 512

__device__ __forceinline__ float warp_sum(float x) {
  for (int other = 16; other > 0; other /= 2) x += __shfl_xor_sync(whole_warp_mask, x, other);
  return x;
}

// Warp bc: row bc. Pack p of lane l has the channels 128 p + 4 l ... + 3; after the row it is zero.
__global__ void forward_kernel(Layernorm a) {
  const int bc = int(blockIdx.x) * rows_of_block + int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  if (bc >= a.BC) return;
  Four in[most_packs] = {};
  float sum = 0;
  for (int p = 0; p < most_packs; ++p) {
    if (128 * p + 4 * lane >= a.D) continue;
    in[p] = load_four(a.in_bcd + bc * a.D + 128 * p + 4 * lane);
    for (int i = 0; i < 4; ++i) sum += in[p].x[i];
  }
  const float mean = warp_sum(sum) / float(a.D);  // (layernorm.1)
  float squares = 0;
  for (int p = 0; p < most_packs; ++p) {
    if (128 * p + 4 * lane >= a.D) continue;
    for (int i = 0; i < 4; ++i) squares += (in[p].x[i] - mean) * (in[p].x[i] - mean);
  }
  const float rstd = rsqrtf(warp_sum(squares) / float(a.D) + 1e-5f);  // (layernorm.2)
  if (lane == 0) {
    a.mean_bc[bc] = mean;
    a.rstd_bc[bc] = rstd;
  }
  for (int p = 0; p < most_packs; ++p) {
    const int d = 128 * p + 4 * lane;
    if (d >= a.D) continue;
    const Four weight = load_four(a.weight_d + d), bias = load_four(a.bias_d + d);
    Four out;
    for (int i = 0; i < 4; ++i) out.x[i] = weight.x[i] * ((in[p].x[i] - mean) * rstd) + bias.x[i];  // (layernorm.3)
    store_four(a.out_bcd + bc * a.D + d, out);
  }
}

// Sums of the warps over their rows, for the gradients of weight and bias.
struct Sums {
  float d_weight[rows_of_block][most_packs * 128], d_bias[rows_of_block][most_packs * 128];
};

// One block. Warp w takes the rows w, w + 4, ...; a lane keeps the sums of its own channels.
__global__ void backward_kernel(Layernorm a) {
  auto& sums = shared_memory<Sums>();
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  Four weight[most_packs] = {}, d_weight[most_packs] = {}, d_bias[most_packs] = {};
  for (int p = 0; p < most_packs; ++p) {
    if (128 * p + 4 * lane < a.D) weight[p] = load_four(a.weight_d + 128 * p + 4 * lane);
  }
  for (int bc = warp; bc < a.BC; bc += rows_of_block) {
    Four u[most_packs] = {}, normed[most_packs] = {};
    const float mean = a.mean_bc[bc], rstd = a.rstd_bc[bc];
    float sum_u = 0, sum_u_normed = 0;
    for (int p = 0; p < most_packs; ++p) {
      const int d = 128 * p + 4 * lane;
      if (d >= a.D) continue;
      const Four in = load_four(a.in_bcd + bc * a.D + d), d_out = load_four(a.d_out_bcd + bc * a.D + d);
      for (int i = 0; i < 4; ++i) {
        normed[p].x[i] = (in.x[i] - mean) * rstd;
        u[p].x[i] = weight[p].x[i] * d_out.x[i];
        sum_u += u[p].x[i];
        sum_u_normed += u[p].x[i] * normed[p].x[i];
        d_weight[p].x[i] += d_out.x[i] * normed[p].x[i];
        d_bias[p].x[i] += d_out.x[i];
      }
    }
    const float mean_u = warp_sum(sum_u) / float(a.D), mean_u_normed = warp_sum(sum_u_normed) / float(a.D);
    for (int p = 0; p < most_packs; ++p) {
      const int d = 128 * p + 4 * lane;
      if (d >= a.D) continue;
      Four d_in;
      for (int i = 0; i < 4; ++i) {
        d_in.x[i] = rstd * (u[p].x[i] - mean_u - normed[p].x[i] * mean_u_normed);  // (layernorm.4)
      }
      store_four(a.d_in_bcd + bc * a.D + d, d_in);
    }
  }
  for (int p = 0; p < most_packs; ++p) {
    if (128 * p + 4 * lane >= a.D) continue;
    store_four(&sums.d_weight[warp][128 * p + 4 * lane], d_weight[p]);
    store_four(&sums.d_bias[warp][128 * p + 4 * lane], d_bias[p]);
  }
  __syncthreads();
  for (int d = int(threadIdx.x); d < a.D; d += rows_of_block * 32) {
    float of_weight = 0, of_bias = 0;
    for (int w = 0; w < rows_of_block; ++w) {
      of_weight += sums.d_weight[w][d];
      of_bias += sums.d_bias[w][d];
    }
    a.d_weight_d[d] += of_weight;  // (layernorm.5)
    a.d_bias_d[d] += of_bias;      // (layernorm.6)
  }
}

}  // namespace

void layernorm_4(const Layernorm& a, cudaStream_t stream) {
  start(forward_kernel, blocks_of(a.BC, rows_of_block), rows_of_block * 32, stream, a);
  start(backward_kernel, 1, rows_of_block * 32, stream, a);
}

}  // namespace ABH_BACKEND
}  // namespace abh
