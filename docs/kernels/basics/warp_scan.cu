// A warp scan: five shuffles. After step s a lane has the sum of the last 2, 4, 8, 16, 32 lanes up to itself.

#include "docs/kernels/basics.hpp"

namespace abh {
inline namespace ABH_BACKEND {

namespace {

// out[lane] = in[0] + ... + in[lane]
__global__ void scan_kernel(float* out, const float* in) {
  const int lane = int(threadIdx.x);
  float sum = in[lane];
  for (int distance = 1; distance < 32; distance *= 2) {
    const float earlier = __shfl_up_sync(whole_warp_mask, sum, unsigned(distance));
    if (lane >= distance) sum += earlier;
  }
  out[lane] = sum;
}

}  // namespace

void warp_scan(float* out, const float* in, cudaStream_t stream) { start(scan_kernel, 1, 32, stream, out, in); }

}  // namespace ABH_BACKEND
}  // namespace abh
