#pragma once

#include "cuda/gemm/gemm.hpp"

namespace abh {

// The product by cuBLASLt, or false, and nothing done, where that has no way to compute it. The way is chosen when a
// shape is seen for the first time, which must not be while a CUDA graph is captured, and kept. Its scratch memory is
// the device's workspace. Defined for the types that gemm is defined for.
template <class T, class Out, Backend backend>
bool library_gemm(GpuDevice<backend>& device, const Gemm<T, Out>& g);

}  // namespace abh
