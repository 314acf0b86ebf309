#pragma once

#include "cuda/gemm/gemm.hpp"

namespace abh {

// Computes the product by cuBLASLt, or returns false without an effect if the library does not support it. The
// algorithm is selected and cached at the first use of a shape, which must not be during CUDA graph capture. Scratch
// memory is the device's workspace. Defined for the same types as gemm.
template <class T, class Out, Backend backend>
bool library_gemm(GpuDevice<backend>& device, const Gemm<T, Out>& g);

}  // namespace abh
