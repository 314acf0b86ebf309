// cuda/linear.cu, the forward pass for floats alone, as production.cu needs no more of it.

#include "cuda/kernel.hpp"
#undef ABH_INSTANTIATE
#define ABH_INSTANTIATE(...)
#include "cuda/linear.cu"

namespace abh {
template decltype(linear_forward<Gpu, float>) linear_forward<Gpu, float>;
}  // namespace abh
