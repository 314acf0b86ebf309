#pragma once

#include "base/types.hpp"
#include "cuda/gpu.hpp"
#include "layers/parts/products.hpp"

namespace abh {

// Matrix product of the GPU's `linear`, `metric_key` and `causal_conv` (Gemm, layers/linear.hpp). At most one of `a`
// and `b` may be transposed. Several products of equal shape are one call, with the same bias.
//
// M, N, K, batches >= 0. `out` must not overlap an operand; rows of one operand may overlap. 2 batches M N K flops.
// Sums are in float; their order depends on the shape alone. (T, Out): (float, float), (bf16, bf16), (bf16, float).
//
// Uses cuBLASLt if the device was made with it and it supports the product, else the kernels of cuda/gemm.cu.
template <class T, class Out, Backend backend>
void gemm(GpuDevice<backend>& device, const Gemm<T, Out>& g);

}  // namespace abh
