// Level 2: a scan across a warp. The states of intervals can be merged in any grouping, so 32 positions take five
// steps. But lanes are now positions, which are K channels apart in memory.

#include "docs/kernels/ladder.hpp"

namespace abh {
inline namespace ABH_BACKEND {

namespace {

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

// The state of lane 31, in every lane.
__device__ __forceinline__ State of_last_lane(const State& mine) {
  return {__shfl_sync(whole_warp_mask, mine.max, 31), __shfl_sync(whole_warp_mask, mine.sum, 31),
          __shfl_sync(whole_warp_mask, mine.average, 31)};
}

// Block (b, k): channel k of head b. Lane l: positions l, l + 32, ...
__global__ void forward_kernel(Pooling a) {
  const int k = int(blockIdx.y), first = int(blockIdx.x) * a.C, lane = int(threadIdx.x);
  State carry = {-infinity, 0, 0};
  for (int tile = 0; tile < a.C; tile += 32) {
    const int c = tile + lane;
    State mine = {-infinity, 0, 0};
    if (c < a.C) mine = {a.logit_bc[first + c], 1, a.x_bck[(first + c) * a.K + k]};
    mine = merged(carry, scan_of_warp(mine, lane));
    if (c < a.C) a.out_bck[(first + c) * a.K + k] = mine.average;  // (pooling.5)
    carry = of_last_lane(mine);
  }
}

}  // namespace

void pooling_2(const Pooling& a, cudaStream_t stream) {
  start(forward_kernel, dim3(unsigned(a.B), unsigned(a.K)), 32, stream, a);
}

}  // namespace ABH_BACKEND
}  // namespace abh
