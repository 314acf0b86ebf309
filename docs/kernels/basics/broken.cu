// The broken kernels of the tests (tests/gpu/broken_kernels.hpp), and the correct ones.

#include "docs/kernels/basics.hpp"
#include "tests/gpu/broken_kernels.hpp"

namespace abh {
inline namespace ABH_BACKEND {

void missing_barrier(float* out, const float* in, bool broken, cudaStream_t stream) {
  start(broken ? broken_kernels::missing_barrier<true> : broken_kernels::missing_barrier<false>, 1,
        broken_kernels::threads, stream, out, in);
}
void divergent_barrier(float* out, const float* in, bool broken, cudaStream_t stream) {
  start(broken ? broken_kernels::divergent_barrier<true> : broken_kernels::divergent_barrier<false>, 1,
        broken_kernels::threads, stream, out, in);
}

}  // namespace ABH_BACKEND
}  // namespace abh
