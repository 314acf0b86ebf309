#include "cuda/kernel.hpp"
#include "layers/pooling.hpp"

namespace abh {

// Inference of pooling.

namespace {

constexpr float minus_infinity = -__builtin_inff();
constexpr int step_threads = 64;

// Size of the state of one head over some positions: top, sum, the averages, the rounding errors of the sum and of the
// averages, and with decay the age.
Index state_width(const PoolingShape& s, bool decays) { return 2 * (s.payloads * s.K + 1) + 1 + (decays ? 1 : 0); }

__global__ static void start_kernel(float* state, Index size, Index counters, Index width) {
  wait_for_kernel_before();
  const Index i = Index{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < size) state[i] = i >= counters && (i - counters) % width == 0 ? minus_infinity : 0;
}

// State of one head over some positions: (top, sum, age) in registers, and the averages in memory; each thread owns
// some averages. Without decay the age is 0, the top is the maximum, and the slope is not read.
struct Running {
  float top;
  double sum;
  float age;
};
template <bool decays>
__device__ float aged_max(const Running& state, float slope) {
  if constexpr (decays) return state.top - slope * state.age;  // (pooling_decay.3)
  return state.top;
}

// Adds one position to a state and returns its share. The averages move by that share, each thread updating its own
// channels; every thread computes the numbers redundantly, so that none waits for another.
template <bool decays>
__device__ float push(Running& state, float logit, float slope) {
  if constexpr (decays) state.age += 1;
  if (logit == minus_infinity) return 0;
  const float aged = aged_max<decays>(state, slope);  // (pooling_decay.2)
  const float most = fmaxf(aged, logit);              // (pooling.2)
  const float keep = state.sum == 0 ? 0 : expf(aged - most);
  const float add = expf(logit - most);
  const double sum = state.sum * keep + add;  // (pooling.3)
  if constexpr (decays) {
    state = logit < aged ? Running{state.top, sum, state.age} : Running{logit, sum, 0};  // (pooling_decay.3)
  } else {
    state = {most, sum, 0};
  }
  return add / float(sum);  // (pooling.4)
}

// Two merged states, and the share of the older state, a suffix that ended `distance` positions ago.
struct Merged {
  float max, sum, share;
};
template <bool decays>
__device__ Merged merge(Running older, const Running& newer, float slope, Index distance) {
  if constexpr (decays) older.age = float(distance);
  const float max_older = aged_max<decays>(older, slope);  // (pooling_sliding_window.8)
  const float max_newer = aged_max<decays>(newer, slope);
  if (older.sum == 0) return {max_newer, float(newer.sum), 0};
  if (newer.sum == 0) return {max_older, float(older.sum), 1};
  const float most = fmaxf(max_older, max_newer);
  const float old_sum = float(older.sum) * expf(max_older - most);
  const float sum = old_sum + float(newer.sum) * expf(max_newer - most);  // (pooling_sliding_window.1)
  return {most, sum, old_sum / sum};                                      // (pooling_sliding_window.2)
}

// An average and its rounding error, moved by a share towards x.
struct Average {
  float average, rest;
};
__device__ inline Average moved(const Average& before, float share, float x) {
  const float by = before.rest + share * ((x - before.average) - before.rest);  // (pooling.5)
  const float average = before.average + by;
  return {average, by - (average - before.average)};
}

// Grid: one block per head; a thread has every 64th channel of its payloads. The state is that of cpu/pooling_step.cpp:
// the prefix of every head; with a window, preceded by the number of positions in the block and followed by one state
// per position of the block, for every head: up to r single positions of this block, after r the suffixes of the
// previous block, at its end. All threads read the maxima and sums; one thread writes them, after a barrier that
// follows the last read.
template <class T, bool decays, bool several>
__global__ void step_kernel(PoolingStep<T> a) {
  wait_for_kernel_before();
  const int N = int(a.shape.N), K = int(a.shape.K), n = int(blockIdx.x), thread = int(threadIdx.x);
  const int channels = several ? int(a.shape.payloads) * K : K;
  const Index window = a.shape.window;
  const bool windowed = window > 0, writes = thread == 0;
  const Index in_block = windowed ? Index(a.state[0]) : 0;
  const bool ends = in_block + 1 == window;  // the block is the whole window; no suffix is needed
  const Index width = 2 * (channels + 1) + (decays ? 2 : 1);
  float* prefix = a.state + (windowed ? 1 : 0) + n * width;
  const auto position = [&](Index r) { return prefix + (r + 1) * N * width; };
  const auto read = [&](const float* from) {
    return Running{from[0], double(from[1]) + from[2 + channels], decays ? from[width - 1] : 0};
  };
  const auto write = [&](float* to, const Running& running) {
    to[0] = running.top;
    to[1] = float(running.sum);
    to[2 + channels] = float(running.sum - to[1]);
    if constexpr (decays) to[width - 1] = running.age;
  };
  const auto average_in = [&](const float* state, int j) { return Average{state[2 + j], state[3 + channels + j]}; };
  const auto write_average = [&](float* state, int j, const Average& average) {
    state[2 + j] = average.average;
    state[3 + channels + j] = average.rest;
  };
  const bool starts = windowed && in_block == 0;

  const float logit = a.logit_n[n];
  const float slope = decays ? a.slope_n[n] : 0;
  Running sums = starts ? Running{minus_infinity, 0, 0} : read(prefix);
  const float* suffix = position(windowed && !ends ? in_block + 1 : -1);
  const Running older = read(suffix);
  const float alpha = push<decays>(sums, logit, slope);
  const Merged merged = windowed && !ends ? merge<decays>(older, sums, slope, in_block + 1)
                                          : Merged{aged_max<decays>(sums, slope), float(sums.sum), 0};
  for (int j = thread; j < channels; j += step_threads) {
    const int h = several ? (j / K * N + n) * K + j % K : n * K + j;
    const float x = float(a.x_h[h]);
    const Average now = moved(starts ? Average{0, 0} : average_in(prefix, j), alpha, x);
    const float old_average = windowed && !ends ? suffix[2 + j] : now.average;
    write_average(prefix, j, now);
    a.out_h[h] = T(now.average + merged.share * (old_average - now.average));  // (pooling_sliding_window.3)
    if (windowed) write_average(position(in_block), j, {logit == minus_infinity ? 0 : x, 0});
  }
  __syncthreads();
  if (writes) {
    write(prefix, sums);
    a.max_n[n] = merged.max;
    a.sum_n[n] = merged.sum;
  }
  if (!windowed) return;
  Running single{minus_infinity, 0, 0};
  push<false>(single, logit, 0);
  if (writes) write(position(in_block), single);
  if (!ends) return;

  // A complete block: its positions become suffixes, from the last to the first. The whole block is not needed.
  for (Index r = window - 2; r > 0; --r) {
    float older_logit = position(r)[0];
    if constexpr (decays) older_logit -= slope * float(window - 1 - r);  // (pooling_sliding_window.8)
    const float share = push<false>(single, older_logit, 0);
    for (int j = thread; j < channels; j += step_threads) {
      write_average(position(r), j, moved(average_in(position(r + 1), j), share, position(r)[2 + j]));
    }
    __syncthreads();
    if (writes) write(position(r), single);
  }
}

// Runs after all heads have read the count.
__global__ static void count_kernel(float* state, Index window) {
  wait_for_kernel_before();
  state[0] = Index(state[0]) + 1 == window ? 0 : state[0] + 1;
}

}  // namespace

template <class Device, class T>
void pooling_start(Device& device, Accum<T>* state, const PoolingShape& s, bool decays) {
  const Index size = pooling_state_size(s, decays);
  launch(start_kernel, blocks_for(size, 128), 128, 0, device.stream(), state, size, s.window > 0 ? 1 : 0,
         state_width(s, decays));
}

template <class Device, class T>
void pooling_step(Device& device, const PoolingStep<T>& a) {
  const bool several = a.shape.payloads > 1;
  const auto kernel = a.slope_n ? several ? step_kernel<T, true, true> : step_kernel<T, true, false>
                      : several ? step_kernel<T, false, true>
                                : step_kernel<T, false, false>;
  launch(kernel, unsigned(a.shape.N), step_threads, 0, device.stream(), a);
  if (a.shape.window > 0) launch(count_kernel, 1, 1, 0, device.stream(), a.state, a.shape.window);
}

ABH_INSTANTIATE(Gpu, pooling_start, pooling_step)

}  // namespace abh
