// Level 3: 16 bytes per lane. A lane reads four neighbouring channels with one access, so a warp reads 512 bytes with
// one request instead of four.

#include "docs/kernels/ladder.hpp"

namespace abh {
inline namespace ABH_BACKEND {

namespace {

constexpr int rows_of_block = 4;

__device__ __forceinline__ float warp_sum(float x) {
  for (int other = 16; other > 0; other /= 2) x += __shfl_xor_sync(whole_warp_mask, x, other);
  return x;
}

// Warp bc: row bc. Lane l has the channels 4 l ... 4 l + 3, then those 128 later, ...
__global__ void forward_kernel(Layernorm a) {
  const int bc = int(blockIdx.x) * rows_of_block + int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  if (bc >= a.BC) return;
  const float* in_d = a.in_bcd + bc * a.D;
  float sum = 0;
  for (int d = 4 * lane; d < a.D; d += 128) {
    const Four in = load_four(in_d + d);
    for (int i = 0; i < 4; ++i) sum += in.x[i];
  }
  const float mean = warp_sum(sum) / float(a.D);  // (layernorm.1)
  float squares = 0;
  for (int d = 4 * lane; d < a.D; d += 128) {
    const Four in = load_four(in_d + d);
    for (int i = 0; i < 4; ++i) squares += (in.x[i] - mean) * (in.x[i] - mean);
  }
  const float rstd = rsqrtf(warp_sum(squares) / float(a.D) + 1e-5f);  // (layernorm.2)
  if (lane == 0) {
    a.mean_bc[bc] = mean;
    a.rstd_bc[bc] = rstd;
  }
  for (int d = 4 * lane; d < a.D; d += 128) {
    const Four in = load_four(in_d + d), weight = load_four(a.weight_d + d), bias = load_four(a.bias_d + d);
    Four out;
    for (int i = 0; i < 4; ++i) out.x[i] = weight.x[i] * ((in.x[i] - mean) * rstd) + bias.x[i];  // (layernorm.3)
    store_four(a.out_bcd + bc * a.D + d, out);
  }
}

__global__ void backward_input_kernel(Layernorm a) {
  const int bc = int(blockIdx.x) * rows_of_block + int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  if (bc >= a.BC) return;
  const float *in_d = a.in_bcd + bc * a.D, *d_out_d = a.d_out_bcd + bc * a.D;
  const float mean = a.mean_bc[bc], rstd = a.rstd_bc[bc];
  float sum_u = 0, sum_u_normed = 0;
  for (int d = 4 * lane; d < a.D; d += 128) {
    const Four in = load_four(in_d + d), d_out = load_four(d_out_d + d), weight = load_four(a.weight_d + d);
    for (int i = 0; i < 4; ++i) {
      sum_u += weight.x[i] * d_out.x[i];
      sum_u_normed += weight.x[i] * d_out.x[i] * ((in.x[i] - mean) * rstd);
    }
  }
  const float mean_u = warp_sum(sum_u) / float(a.D), mean_u_normed = warp_sum(sum_u_normed) / float(a.D);
  for (int d = 4 * lane; d < a.D; d += 128) {
    const Four in = load_four(in_d + d), d_out = load_four(d_out_d + d), weight = load_four(a.weight_d + d);
    Four d_in;
    for (int i = 0; i < 4; ++i) {
      const float u = weight.x[i] * d_out.x[i], normed = (in.x[i] - mean) * rstd;
      d_in.x[i] = rstd * (u - mean_u - normed * mean_u_normed);  // (layernorm.4)
    }
    store_four(a.d_in_bcd + bc * a.D + d, d_in);
  }
}

// Thread d: channels 4 d ... 4 d + 3, sums over all rows.
__global__ void backward_weight_kernel(Layernorm a) {
  const int d = 4 * int(blockIdx.x * blockDim.x + threadIdx.x);
  if (d >= a.D) return;
  Four d_weight = load_four(a.d_weight_d + d), d_bias = load_four(a.d_bias_d + d);
  for (int bc = 0; bc < a.BC; ++bc) {
    const Four in = load_four(a.in_bcd + bc * a.D + d), d_out = load_four(a.d_out_bcd + bc * a.D + d);
    const float mean = a.mean_bc[bc], rstd = a.rstd_bc[bc];
    for (int i = 0; i < 4; ++i) {
      d_weight.x[i] += d_out.x[i] * ((in.x[i] - mean) * rstd);  // (layernorm.5)
      d_bias.x[i] += d_out.x[i];                                // (layernorm.6)
    }
  }
  store_four(a.d_weight_d + d, d_weight);
  store_four(a.d_bias_d + d, d_bias);
}

}  // namespace

void layernorm_3(const Layernorm& a, cudaStream_t stream) {
  start(forward_kernel, blocks_of(a.BC, rows_of_block), rows_of_block * 32, stream, a);
  start(backward_input_kernel, blocks_of(a.BC, rows_of_block), rows_of_block * 32, stream, a);
  start(backward_weight_kernel, blocks_of(a.D, 4 * 32), 32, stream, a);
}

}  // namespace ABH_BACKEND
}  // namespace abh
