// Level 1: one thread per channel, position after position. Lanes read neighbouring channels, but each position waits
// for the position before it.

#include "docs/kernels/ladder.hpp"

namespace abh {
inline namespace ABH_BACKEND {

namespace {

// Block b: head b. Thread k: channel k.
__global__ void forward_kernel(Pooling a) {
  const int k = int(threadIdx.x), first = int(blockIdx.x) * a.C;
  float max = -infinity, sum = 0, average = 0;
  for (int c = 0; c < a.C; ++c) {
    const float logit = a.logit_bc[first + c], max_before = max;
    max = fmaxf(max, logit);                                        // (pooling.2)
    sum = sum * expf(max_before - max) + expf(logit - max);         // (pooling.3)
    const float alpha = expf(logit - max) / sum;                    // (pooling.4)
    average += alpha * (a.x_bck[(first + c) * a.K + k] - average);  // (pooling.5)
    a.out_bck[(first + c) * a.K + k] = average;
  }
}

}  // namespace

void pooling_1(const Pooling& a, cudaStream_t stream) { start(forward_kernel, a.B, a.K, stream, a); }

}  // namespace ABH_BACKEND
}  // namespace abh
