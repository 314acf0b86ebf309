// cuda/layernorm.cu, both passes for floats alone, as production.cu needs no more of it.

#include "cuda/kernel.hpp"
#undef ABH_INSTANTIATE
#define ABH_INSTANTIATE(...)
#include "cuda/layernorm.cu"

namespace abh {
template decltype(layernorm_forward<Gpu, float>) layernorm_forward<Gpu, float>;
template decltype(layernorm_backward<Gpu, float>) layernorm_backward<Gpu, float>;
}  // namespace abh
