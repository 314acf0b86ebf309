// Level 3: a tile transposed in shared memory. The block reads 32 positions of 8 channels by rows, 32 bytes each, and
// the warps scan the columns. With rows of 9 numbers a column lies in 32 different banks; with rows of 8 it would lie
// in four.

#include "docs/kernels/ladder.hpp"

namespace abh {
inline namespace ABH_BACKEND {

namespace {

constexpr int channels = 8;

struct Tile {
  float x[32][channels + 1];
};

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

// Block (b, j): channels 8 j ... 8 j + 7 of head b, one warp each.
__global__ void forward_kernel(Pooling a) {
  auto& tile = shared_memory<Tile>();
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  const int row = int(threadIdx.x) / channels, column = int(threadIdx.x) % channels;
  const int first = int(blockIdx.x) * a.C, first_k = int(blockIdx.y) * channels;
  const bool there = first_k + column < a.K;
  State carry = {-infinity, 0, 0};
  for (int begin = 0; begin < a.C; begin += 32) {
    if (there && begin + row < a.C) tile.x[row][column] = a.x_bck[(first + begin + row) * a.K + first_k + column];
    __syncthreads();
    State mine = {-infinity, 0, 0};
    if (begin + lane < a.C) mine = {a.logit_bc[first + begin + lane], 1, tile.x[lane][warp]};
    mine = merged(carry, scan_of_warp(mine, lane));
    tile.x[lane][warp] = mine.average;  // (pooling.5)
    carry = of_last_lane(mine);
    __syncthreads();
    if (there && begin + row < a.C) a.out_bck[(first + begin + row) * a.K + first_k + column] = tile.x[row][column];
    __syncthreads();
  }
}

}  // namespace

void pooling_3(const Pooling& a, cudaStream_t stream) {
  start(forward_kernel, dim3(unsigned(a.B), blocks_of(a.K, channels)), channels * 32, stream, a);
}

}  // namespace ABH_BACKEND
}  // namespace abh
