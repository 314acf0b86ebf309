// cuda/attention.cu, the forward pass for floats alone, as production.cu needs no more of it.

#include "cuda/kernel.hpp"
#undef ABH_INSTANTIATE
#define ABH_INSTANTIATE(...)
#include "cuda/attention.cu"

namespace abh {
template decltype(attention_forward<Gpu, float>) attention_forward<Gpu, float>;
}  // namespace abh
