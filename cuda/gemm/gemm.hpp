#pragma once

#include "base/types.hpp"
#include "cuda/gpu.hpp"
#include "layers/parts/products.hpp"

namespace abh {

// The matrix product behind the GPU's `linear`, `metric_key` and `causal_conv` (Gemm, layers/linear.hpp). Not
// both `a` and `b` may be transposed. Products of equal shape are one call, with the same bias.
//
// M, N, K, batches >= 0. `out` overlaps neither operand; rows of an operand may overlap each other. 2 batches M N K
// flops. Sums are in float, their order depends on the shape alone. (T, Out): (float, float), (bf16, bf16),
// (bf16, float).
//
// By the library, where the device was made with it and it can, else by the kernels of cuda/gemm.cu.
template <class T, class Out, Backend backend>
void gemm(GpuDevice<backend>& device, const Gemm<T, Out>& g);

}  // namespace abh
