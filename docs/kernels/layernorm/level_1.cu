// Level 1: one thread per row. Each thread runs the plain loops for one row.

#include "docs/kernels/ladder.hpp"

namespace abh {
inline namespace ABH_BACKEND {

namespace {

// Thread bc: mean, 1 / standard deviation and output of row bc.
__global__ void forward_kernel(Layernorm a) {
  const int bc = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (bc >= a.BC) return;
  const float* in_d = a.in_bcd + bc * a.D;
  float sum = 0;
  for (int d = 0; d < a.D; ++d) sum += in_d[d];
  const float mean = sum / float(a.D);  // (layernorm.1)
  float squares = 0;
  for (int d = 0; d < a.D; ++d) squares += (in_d[d] - mean) * (in_d[d] - mean);
  const float rstd = rsqrtf(squares / float(a.D) + 1e-5f);  // (layernorm.2)
  a.mean_bc[bc] = mean;
  a.rstd_bc[bc] = rstd;
  for (int d = 0; d < a.D; ++d) {
    a.out_bcd[bc * a.D + d] = a.weight_d[d] * ((in_d[d] - mean) * rstd) + a.bias_d[d];  // (layernorm.3)
  }
}

// Thread bc: the gradient of row bc of the input.
__global__ void backward_input_kernel(Layernorm a) {
  const int bc = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (bc >= a.BC) return;
  const float *in_d = a.in_bcd + bc * a.D, *d_out_d = a.d_out_bcd + bc * a.D;
  const float mean = a.mean_bc[bc], rstd = a.rstd_bc[bc];
  float sum_u = 0, sum_u_normed = 0;
  for (int d = 0; d < a.D; ++d) {
    const float u = a.weight_d[d] * d_out_d[d];
    sum_u += u;
    sum_u_normed += u * ((in_d[d] - mean) * rstd);
  }
  const float mean_u = sum_u / float(a.D), mean_u_normed = sum_u_normed / float(a.D);
  for (int d = 0; d < a.D; ++d) {
    const float u = a.weight_d[d] * d_out_d[d], normed = (in_d[d] - mean) * rstd;
    a.d_in_bcd[bc * a.D + d] = rstd * (u - mean_u - normed * mean_u_normed);  // (layernorm.4)
  }
}

// Thread d: the gradients of weight d and bias d, sums over all rows.
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

void layernorm_1(const Layernorm& a, cudaStream_t stream) {
  start(forward_kernel, blocks_of(a.BC, 128), 128, stream, a);
  start(backward_input_kernel, blocks_of(a.BC, 128), 128, stream, a);
  start(backward_weight_kernel, blocks_of(a.D, 128), 128, stream, a);
}

}  // namespace ABH_BACKEND
}  // namespace abh
