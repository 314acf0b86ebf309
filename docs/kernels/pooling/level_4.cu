// Level 4: a scan across a block, with a carry. Each warp scans 32 positions, the states of the warps are merged in
// shared memory, and the state of all 128 positions is carried to the next ones.

#include "docs/kernels/ladder.hpp"

namespace abh {
inline namespace ABH_BACKEND {

namespace {

constexpr int warps = 4;

// State of an interval of positions for one channel: the largest logit, the sum of weights, the average.
struct State {
  float max, sum, average;
};

// Merges the states of two neighbouring intervals, the earlier one first.
__device__ __forceinline__ State merged(const State& a, const State& b) {
  const float max = fmaxf(a.max, b.max);
  const float of_a = a.sum > 0 ? a.sum * expf(a.max - max) : 0, of_b = b.sum * expf(b.max - max);
  return {max, of_a + of_b, (of_a * a.average + of_b * b.average) / (of_a + of_b)};
}

// Lane l gets the merged state of the lanes 0 ... l. Each step doubles the length of the intervals.
__device__ __forceinline__ State scan_of_warp(State mine, int lane) {
  for (int distance = 1; distance < 32; distance *= 2) {
    const State earlier = {__shfl_up_sync(whole_warp_mask, mine.max, unsigned(distance)),
                           __shfl_up_sync(whole_warp_mask, mine.sum, unsigned(distance)),
                           __shfl_up_sync(whole_warp_mask, mine.average, unsigned(distance))};
    if (lane >= distance) mine = merged(earlier, mine);
  }
  return mine;
}

struct States {
  State of_warp[warps];
};

// Block (b, k): channel k of head b. Thread t: positions t, t + 128, ...
__global__ void forward_kernel(Pooling a) {
  auto& states = shared_memory<States>();
  const int k = int(blockIdx.y), first = int(blockIdx.x) * a.C, warp = int(threadIdx.x) / 32;
  State carry = {-infinity, 0, 0};
  for (int tile = 0; tile < a.C; tile += warps * 32) {
    const int c = tile + int(threadIdx.x);
    State mine = {-infinity, 0, 0};
    if (c < a.C) mine = {a.logit_bc[first + c], 1, a.x_bck[(first + c) * a.K + k]};
    mine = scan_of_warp(mine, int(threadIdx.x) % 32);
    if (threadIdx.x % 32 == 31) states.of_warp[warp] = mine;
    __syncthreads();
    State before = carry;
    for (int w = 0; w < warps; ++w) {
      if (w == warp) before = carry;
      if (states.of_warp[w].sum > 0) carry = merged(carry, states.of_warp[w]);
    }
    if (c < a.C) a.out_bck[(first + c) * a.K + k] = merged(before, mine).average;  // (pooling.5)
    __syncthreads();
  }
}

}  // namespace

void pooling_4(const Pooling& a, cudaStream_t stream) {
  start(forward_kernel, dim3(unsigned(a.B), unsigned(a.K)), warps * 32, stream, a);
}

}  // namespace ABH_BACKEND
}  // namespace abh
