#pragma once

#include "base/types.hpp"
#include "cuda/gpu.hpp"

namespace abh {

// out_mn = scale (a_mk b_kn + bias_n), or the same added to out_mn: the matrix product behind the GPU's `linear`,
// `metric_attention` and `causal_conv`. Element (m, k) of `a` stands at a_mk[m * a_row + k * a_col], so that a
// transposed matrix is one with its strides exchanged; not both `a` and `b` may be transposed. Products of equal shape
// are one call: batch i works on out_mn + i out_batch, a_mk + i a_batch and b_kn + i b_batch, and all on the same bias.
//
// M, N, K, batches >= 0. `out` overlaps neither operand; rows of an operand may overlap each other. 2 batches M N K
// flops. Sums are in float, their order depends on the shape alone. (T, Out): (float, float), (bf16, bf16),
// (bf16, float).
template <class T, class Out>
struct Gemm {
  Out* out_mn;
  const T* a_mk;
  const T* b_kn;
  const T* bias_n = nullptr;
  Index M, N, K;
  Index out_row;
  Index a_row, a_col;  // one of them is 1
  Index b_row, b_col;  // one of them is 1
  float scale = 1;
  bool accumulate = false;
  Index batches = 1;
  Index out_batch = 0, a_batch = 0, b_batch = 0;
};

// By the library, where the device was made with it and it can, else by the kernels of cuda/gemm.cu.
template <class T, class Out, Backend backend>
void gemm(GpuDevice<backend>& device, const Gemm<T, Out>& g);

}  // namespace abh
