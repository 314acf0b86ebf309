#include "cuda/kernel.hpp"
#include "layers/pooling.hpp"

namespace abh {

// Pooling, step by step.

namespace {

constexpr float minus_infinity = -__builtin_inff();
constexpr int step_threads = 64;

__global__ static void start_kernel(float* state, Index size, Index counters, Index triple) {
  const Index i = Index{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < size) state[i] = i >= counters && (i - counters) % triple == 0 ? minus_infinity : 0;
}

// The state of one head over some positions: (max, sum) in registers, the K averages in memory, of which each thread
// has its own.
struct Running {
  float max, sum;
};

// Adds one position to a state and returns its share in it. The averages move by that share, each thread those of its
// own channels; every thread computes the two numbers, so that none waits for another.
__device__ float push(Running& state, float logit) {
  if (logit == minus_infinity) return 0;
  const float most = fmaxf(state.max, logit);  // (pooling.2)
  const float keep = state.sum == 0 ? 0 : expf(state.max - most);
  const float add = expf(logit - most);
  state = {most, state.sum * keep + add};  // (pooling.3)
  return add / state.sum;                  // (pooling.4)
}

// Two states as one, and the share of the older.
struct Merged {
  Running both;
  float share;
};
__device__ Merged merge(const Running& older, const Running& newer) {
  if (older.sum == 0) return {newer, 0};
  if (newer.sum == 0) return {older, 1};
  const float most = fmaxf(older.max, newer.max);
  const float old_sum = older.sum * expf(older.max - most);
  const float sum = old_sum + newer.sum * expf(newer.max - most);  // (pooling.6)
  return {{most, sum}, old_sum / sum};                             // (pooling.7)
}

// Grid: a block a head; a thread has every 64th channel. The state is the one of cpu/pooling_step.cpp: the
// prefix triple of every head; with a window, before it the positions in the block so far, and behind it one triple a
// position of the block, for every head: up to r single positions of this block, after r the suffixes of the block
// before. All threads know the maxima and sums; one of them writes these, behind a barrier after which nobody reads the
// old ones.
template <class T>
__global__ void step_kernel(PoolingStep<T> a) {
  const int N = int(a.shape.N), K = int(a.shape.K), n = int(blockIdx.x), thread = int(threadIdx.x);
  const Index window = a.shape.window;
  const bool windowed = window > 0, writes = thread == 0;
  const Index in_block = windowed ? Index(a.state[0]) : 0;
  const bool ends = in_block + 1 == window;  // the block is the window: no suffix fills it up
  const Index triple = K + 2;
  float* prefix = a.state + (windowed ? 1 : 0) + n * triple;
  const auto position = [&](Index r) { return prefix + (r + 1) * N * triple; };
  const bool starts = windowed && in_block == 0;

  const float logit = a.logit_n[n];
  Running sums = starts ? Running{minus_infinity, 0} : Running{prefix[0], prefix[1]};
  const float* suffix = position(windowed && !ends ? in_block + 1 : -1);
  const Running older{suffix[0], suffix[1]};
  const float alpha = push(sums, logit);
  const Merged merged = windowed && !ends ? merge(older, sums) : Merged{sums, 0};
  for (int k = thread; k < K; k += step_threads) {
    const float x = float(a.x_h[n * K + k]), before = starts ? 0 : prefix[2 + k];
    const float average = before + alpha * (x - before);  // (pooling.5)
    const float old_average = windowed && !ends ? suffix[2 + k] : average;
    prefix[2 + k] = average;
    a.out_h[n * K + k] = T(average + merged.share * (old_average - average));  // (pooling.8)
    if (windowed) position(in_block)[2 + k] = logit == minus_infinity ? 0 : x;
  }
  __syncthreads();
  if (writes) {
    prefix[0] = sums.max;
    prefix[1] = sums.sum;
    a.max_n[n] = merged.both.max;
    a.sum_n[n] = merged.both.sum;
  }
  if (!windowed) return;
  Running single{minus_infinity, 0};
  push(single, logit);
  if (writes) {
    position(in_block)[0] = single.max;
    position(in_block)[1] = single.sum;
  }
  if (!ends) return;

  // A full block: its positions become suffixes, from the last to the first. The whole block is never anybody's suffix.
  for (Index r = window - 2; r > 0; --r) {
    const float share = push(single, position(r)[0]);
    for (int k = thread; k < K; k += step_threads) {
      const float before = position(r + 1)[2 + k];
      position(r)[2 + k] = before + share * (position(r)[2 + k] - before);
    }
    __syncthreads();
    if (writes) {
      position(r)[0] = single.max;
      position(r)[1] = single.sum;
    }
  }
}

// Only after all heads have read it.
__global__ static void count_kernel(float* state, Index window) {
  state[0] = Index(state[0]) + 1 == window ? 0 : state[0] + 1;
}

}  // namespace

template <class Device, class T>
void pooling_start(Device& device, Accum<T>* state, const PoolingShape& s, bool) {
  const Index size = pooling_state_size(s);
  launch(start_kernel, blocks_for(size, 128), 128, 0, device.stream(), state, size, s.window > 0 ? 1 : 0, s.K + 2);
}

template <class Device, class T>
void pooling_step(Device& device, const PoolingStep<T>& a) {
  launch(step_kernel<T>, unsigned(a.shape.N), step_threads, 0, device.stream(), a);
  if (a.shape.window > 0) launch(count_kernel, 1, 1, 0, device.stream(), a.state, a.shape.window);
}

#define INSTANTIATE(T)                                            \
  template decltype(pooling_start<Gpu, T>) pooling_start<Gpu, T>; \
  template decltype(pooling_step<Gpu, T>) pooling_step<Gpu, T>;
ABH_FOR_EACH_NUMBER(INSTANTIATE)

}  // namespace abh
