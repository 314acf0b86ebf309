#pragma once

// Scans of pooling over numbers per position: maxima, sums, weights. A group of 128 threads, up to two of them in a
// block, loops over the sequence of a head, 1,024 positions at a time, or one warp of a block, 256 at a time, with the
// same bits. layers/pooling.hpp has the equations.

#include "cuda/kernel.hpp"

namespace abh {
inline namespace ABH_BACKEND {

inline constexpr float minus_infinity = -__builtin_inff();

enum class PoolingOrder { up, down };

// Effect of one or more positions on a state. Sums: state -> keep state + add. Running maxima: state -> max(keep +
// state, add), where a keep of -infinity restarts the maximum.
struct Step {
  float keep, add;
};
__device__ __forceinline__ Step of_lane(const Step& step, int lane) {
  return {__shfl_sync(whole_warp, step.keep, lane), __shfl_sync(whole_warp, step.add, lane)};
}
// Sums over a whole sequence, with many small terms next to a few large ones.
struct LongStep {
  double keep, add;
};
__device__ __forceinline__ LongStep of_lane(const LongStep& step, int lane) {
  return {__shfl_sync(whole_warp, step.keep, lane), __shfl_sync(whole_warp, step.add, lane)};
}
struct LongSums {
  using State = double;
  using Effect = LongStep;
  static __device__ double start() { return 0; }
  static __device__ LongStep nothing() { return {1, 0}; }
  static __device__ double after(double state, LongStep step) { return step.keep * state + step.add; }
  static __device__ LongStep both(LongStep first, LongStep then) {
    return {first.keep * then.keep, then.keep * first.add + then.add};
  }
};
struct Maxima {
  using State = float;
  using Effect = Step;
  static __device__ float start() { return minus_infinity; }
  static __device__ Step nothing() { return {0, minus_infinity}; }
  static __device__ float after(float state, Step step) { return fmaxf(state + step.keep, step.add); }
  static __device__ Step both(Step first, Step then) {
    return {first.keep + then.keep, fmaxf(first.add + then.keep, then.add)};
  }
};

inline constexpr int scan_threads = 128;
inline constexpr int scan_warps = scan_threads / warp_size;
inline constexpr int most_scans = 2;  // groups of a block
inline constexpr int positions_per_thread = 8;

template <class Kind>
struct WarpTotals {
  typename Kind::Effect of_warp[most_scans][scan_warps];
};

// State before a thread's positions, whose effect is `mine`. carry is the state before all positions of the threads,
// and on return the state after them. Must be called by all threads of a block, each group for a head of its own, or,
// without a barrier, of a warp.
template <int threads, class Kind>
__device__ typename Kind::State state_before(const Kind& kind, typename Kind::Effect mine,
                                             typename Kind::State& carry) {
  using Effect = typename Kind::Effect;
  const int lane = int(threadIdx.x) % warp_size, warp = int(threadIdx.x) % threads / warp_size;
  Effect upto = mine;  // over all lanes up to this one
  for (int distance = 1; distance < warp_size; distance *= 2) {
    const Effect earlier = of_lane(upto, lane < distance ? lane : lane - distance);
    if (lane >= distance) upto = kind.both(earlier, upto);
  }
  const Effect earlier = of_lane(upto, lane == 0 ? 0 : lane - 1);
  typename Kind::State state = carry;
  if constexpr (threads == warp_size) {
    carry = kind.after(carry, of_lane(upto, warp_size - 1));
  } else {
    static_assert(threads == scan_threads);
    auto& of_warp = shared_memory<WarpTotals<Kind>>().of_warp[threadIdx.x / threads];
    if (lane == warp_size - 1) of_warp[warp] = upto;
    __syncthreads();
    for (int w = 0; w < scan_warps; ++w) {
      if (w < warp) state = kind.after(state, of_warp[w]);
      carry = kind.after(carry, of_warp[w]);
    }
    __syncthreads();  // before the next call overwrites the totals
  }
  return lane == 0 ? state : kind.after(state, earlier);
}

// Scan by a group or warp over C positions in an order: calls effect_at(c) first, then visit(c, state before, state
// after). Position c always belongs to the same thread, which may store numbers in memory for later scans. `whole`: C
// is a multiple of the positions per loop, so that no position is tested.
template <int threads = scan_threads, bool whole = false, class Kind, class EffectAt, class Visit>
__device__ void scan_positions(const Kind& kind, int C, PoolingOrder order, const EffectAt& effect_at,
                               const Visit& visit) {
  typename Kind::State carry = kind.start();
  for (int round = 0; round < C; round += threads * positions_per_thread) {
    const int first = round + int(threadIdx.x) % threads * positions_per_thread;
    const auto position = [&](int i) { return order == PoolingOrder::up ? first + i : C - 1 - first - i; };
    typename Kind::Effect effects[positions_per_thread];
    typename Kind::Effect mine = kind.nothing();
    for (int i = 0; i < positions_per_thread; ++i) {
      effects[i] = whole || first + i < C ? effect_at(position(i)) : kind.nothing();
      mine = kind.both(mine, effects[i]);
    }
    typename Kind::State state = state_before<threads>(kind, mine, carry);
    for (int i = 0; i < positions_per_thread; ++i) {
      const typename Kind::State before = state;
      state = kind.after(state, effects[i]);
      if (whole || first + i < C) visit(position(i), before, state);
    }
  }
}

// True if c is the first position of a block in this order.
__device__ inline bool starts(int c, int C, int block, PoolingOrder order) {
  if (block == C) return c == (order == PoolingOrder::up ? 0 : C - 1);  // avoids a division
  return order == PoolingOrder::up ? c % block == 0 : c == C - 1 || c % block == block - 1;
}

// max_c: largest logit of the block up to c. keep_c and add_c: factors of the sum relative to the previous maximum and
// of the new position; one of the two is 1. keep_c is 0 at the start of a block, and 1 if nothing is added. Both powers
// are computed in any case: those of a thread's positions then do not wait for each other.
template <int threads = scan_threads, bool whole = false, class Logits>
__device__ void running_max(float* max_c, float* keep_c, float* add_c, const Logits& logit, int C, int block,
                            PoolingOrder order) {
  scan_positions<threads, whole>(
      Maxima{}, C, order,
      [&](int c) {
        return Step{starts(c, C, block, order) ? minus_infinity : 0.0f, logit(c)};
      },
      [&](int c, float before, float most) {
        max_c[c] = most;  // (pooling.2) (pooling_sliding_window.4)
        // -infinity - (-infinity) is never used: an unmasked position makes the maximum finite.
        const float newcomer = logit(c), kept = expf(before - most), added = expf(newcomer - most);
        const bool first = starts(c, C, block, order), nothing_new = newcomer == minus_infinity;
        keep_c[c] = first ? 0 : nothing_new ? 1 : kept;
        add_c[c] = nothing_new ? 0 : added;
      });
}

// sum_c, relative to the running maximum, and its reciprocal, 0 while all positions are masked. first_rest: rounding
// error of the logit of position 0. last_rest: receives that of the sum of position C - 1; null: not stored.
template <int threads = scan_threads, bool whole = false>
__device__ void running_sum(float* sum_c, float* share_c, const float* keep_c, const float* add_c, int C,
                            PoolingOrder order, float first_rest = 0, float* last_rest = nullptr) {
  scan_positions<threads, whole>(
      LongSums{}, C, order,
      [&](int c) {
        return LongStep{keep_c[c], c == 0 ? add_c[c] * (1 + double(first_rest)) : add_c[c]};
      },
      [&](int c, double, double sum) {
        sum_c[c] = float(sum);  // (pooling.3), computed by the scan of keep and add above
        share_c[c] = sum == 0 ? 0 : float(1 / sum);
        if (last_rest && c == C - 1) *last_rest = float(sum - sum_c[c]);
      });
}

}  // namespace ABH_BACKEND
}  // namespace abh
