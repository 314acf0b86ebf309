// cuda/pooling.cu, the forward pass for floats alone, as production.cu needs no more of it.

#include "cuda/kernel.hpp"
#undef ABH_INSTANTIATE
#define ABH_INSTANTIATE(...)
#include "cuda/pooling.cu"

namespace abh {
template decltype(pooling_forward<Gpu, float>) pooling_forward<Gpu, float>;
}  // namespace abh
