// Level 2: one warp per row. Neighbouring lanes read neighbouring channels, and shuffles add the sums of the lanes.

#include "docs/kernels/ladder.hpp"

namespace abh {
inline namespace ABH_BACKEND {

namespace {

constexpr int rows_of_block = 4;

// The sum over the 32 lanes of a warp, in every lane: after each step twice as many lanes share a sum.
__device__ __forceinline__ float warp_sum(float x) {
  for (int other = 16; other > 0; other /= 2) x += __shfl_xor_sync(whole_warp_mask, x, other);
  return x;
}

// Warp bc: row bc. Lane l has the channels l, l + 32, l + 64, ...
__global__ void forward_kernel(Layernorm a) {
  const int bc = int(blockIdx.x) * rows_of_block + int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  if (bc >= a.BC) return;
  const float* in_d = a.in_bcd + bc * a.D;
  float sum = 0;
  for (int d = lane; d < a.D; d += 32) sum += in_d[d];
  const float mean = warp_sum(sum) / float(a.D);  // (layernorm.1)
  float squares = 0;
  for (int d = lane; d < a.D; d += 32) squares += (in_d[d] - mean) * (in_d[d] - mean);
  const float rstd = rsqrtf(warp_sum(squares) / float(a.D) + 1e-5f);  // (layernorm.2)
  if (lane == 0) {
    a.mean_bc[bc] = mean;
    a.rstd_bc[bc] = rstd;
  }
  for (int d = lane; d < a.D; d += 32) {
    a.out_bcd[bc * a.D + d] = a.weight_d[d] * ((in_d[d] - mean) * rstd) + a.bias_d[d];  // (layernorm.3)
  }
}

__global__ void backward_input_kernel(Layernorm a) {
  const int bc = int(blockIdx.x) * rows_of_block + int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  if (bc >= a.BC) return;
  const float *in_d = a.in_bcd + bc * a.D, *d_out_d = a.d_out_bcd + bc * a.D;
  const float mean = a.mean_bc[bc], rstd = a.rstd_bc[bc];
  float sum_u = 0, sum_u_normed = 0;
  for (int d = lane; d < a.D; d += 32) {
    const float u = a.weight_d[d] * d_out_d[d];
    sum_u += u;
    sum_u_normed += u * ((in_d[d] - mean) * rstd);
  }
  const float mean_u = warp_sum(sum_u) / float(a.D), mean_u_normed = warp_sum(sum_u_normed) / float(a.D);
  for (int d = lane; d < a.D; d += 32) {
    const float u = a.weight_d[d] * d_out_d[d], normed = (in_d[d] - mean) * rstd;
    a.d_in_bcd[bc * a.D + d] = rstd * (u - mean_u - normed * mean_u_normed);  // (layernorm.4)
  }
}

// Thread d, as at level 1: lanes already read neighbouring channels.
__global__ void backward_weight_kernel(Layernorm a) {
  const int d = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (d >= a.D) return;
  float d_weight = 0, d_bias = 0;
  for (int bc = 0; bc < a.BC; ++bc) {
    const float d_out = a.d_out_bcd[bc * a.D + d];
    d_weight += d_out * ((a.in_bcd[bc * a.D + d] - a.mean_bc[bc]) * a.rstd_bc[bc]);
    d_bias += d_out;
  }
  a.d_weight_d[d] += d_weight;  // (layernorm.5)
  a.d_bias_d[d] += d_bias;      // (layernorm.6)
}

}  // namespace

void layernorm_2(const Layernorm& a, cudaStream_t stream) {
  start(forward_kernel, blocks_of(a.BC, rows_of_block), rows_of_block * 32, stream, a);
  start(backward_input_kernel, blocks_of(a.BC, rows_of_block), rows_of_block * 32, stream, a);
  start(backward_weight_kernel, blocks_of(a.D, 128), 128, stream, a);
}

}  // namespace ABH_BACKEND
}  // namespace abh
