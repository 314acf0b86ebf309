// Level 5: chunks in two launches. Lanes are channels again, as at level 1, and chunks of positions run in parallel.
// The first launch computes the state of each chunk, the second starts each chunk with the state of all earlier chunks.

#include "docs/kernels/ladder.hpp"

namespace abh {
inline namespace ABH_BACKEND {

namespace {

// Adds one position, (pooling.2) to (pooling.5).
struct State {
  float max, sum, average;
};
__device__ __forceinline__ void step(State& state, float logit, float x) {
  const float max = fmaxf(state.max, logit), kept = state.sum * expf(state.max - max), weight = expf(logit - max);
  state = {max, kept + weight, state.average + weight / (kept + weight) * (x - state.average)};
}

// Block (b, i): chunk i of head b. Thread k: channel k. state_of_chunk: the averages, then the largest logit and the
// sum.
__global__ void chunk_kernel(Pooling a) {
  const int k = int(threadIdx.x), chunk = int(blockIdx.y), first = int(blockIdx.x) * a.C;
  State state = {-infinity, 0, 0};
  for (int c = chunk * pooling_chunk; c < (chunk + 1) * pooling_chunk && c < a.C; ++c) {
    step(state, a.logit_bc[first + c], a.x_bck[(first + c) * a.K + k]);
  }
  float* to = a.scratch + (int(blockIdx.x) * int(gridDim.y) + chunk) * (a.K + 2);
  to[k] = state.average;
  if (k == 0) {
    to[a.K] = state.max;
    to[a.K + 1] = state.sum;
  }
}

__global__ void forward_kernel(Pooling a) {
  const int k = int(threadIdx.x), chunk = int(blockIdx.y), first = int(blockIdx.x) * a.C;
  State state = {-infinity, 0, 0};
  for (int i = 0; i < chunk; ++i) {  // merges the states of the earlier chunks
    const float* of_chunk = a.scratch + (int(blockIdx.x) * int(gridDim.y) + i) * (a.K + 2);
    const float max = fmaxf(state.max, of_chunk[a.K]);
    const float kept = state.sum * expf(state.max - max), more = of_chunk[a.K + 1] * expf(of_chunk[a.K] - max);
    state = {max, kept + more, (kept * state.average + more * of_chunk[k]) / (kept + more)};
  }
  for (int c = chunk * pooling_chunk; c < (chunk + 1) * pooling_chunk && c < a.C; ++c) {
    step(state, a.logit_bc[first + c], a.x_bck[(first + c) * a.K + k]);
    a.out_bck[(first + c) * a.K + k] = state.average;
  }
}

}  // namespace

void pooling_5(const Pooling& a, cudaStream_t stream) {
  const dim3 grid(unsigned(a.B), blocks_of(a.C, pooling_chunk));
  start(chunk_kernel, grid, a.K, stream, a);
  start(forward_kernel, grid, a.K, stream, a);
}

}  // namespace ABH_BACKEND
}  // namespace abh
