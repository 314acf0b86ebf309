#pragma once

// Pooling on the GPU with decay: the scans of maxima with decreasing logits.

#include "cuda/pooling_weight_scans.hpp"

namespace abh {
inline namespace ABH_BACKEND {

// Decay of a head's logits per position.
template <bool decays>
__device__ float slope_of(const float* slope_n, int n) {
  if constexpr (decays) return slope_n[n];
  return 0;
}

// Maxima with decay. A state is the largest logit, unchanged, and its position, which gives its age at any position.
// Merging two stretches compares their tops at the position of the later one, which replaces the other if it is larger
// by `margin`.
struct Top {
  float keep;  // added to the earlier maximum: 0, or -infinity at the start of a block
  float top;
  int from;
};
__device__ __forceinline__ Top of_lane(const Top& top, int lane) {
  return {__shfl_sync(whole_warp, top.keep, lane), __shfl_sync(whole_warp, top.top, lane),
          __shfl_sync(whole_warp, top.from, lane)};
}
struct DecayedMaxima {
  using State = Top;
  using Effect = Top;
  float slope, margin;
  // Value of a top, decayed to position c, in either order.
  __device__ float at(const Top& top, int c) const {
    return top.top - slope * float(c < top.from ? top.from - c : c - top.from);  // (pooling_decay.2)
  }
  static __device__ Top start() { return nothing(); }
  static __device__ Top nothing() { return {0, minus_infinity, 0}; }
  __device__ Top after(const Top& state, const Top& then) const { return both(state, then); }
  __device__ Top both(const Top& first, const Top& then) const {
    const bool stays = then.top - margin < at(first, then.from) + then.keep;
    return {first.keep + then.keep, stays ? first.top : then.top, stays ? first.from : then.from};  // (pooling_decay.3)
  }
};

// running_max with decay. While the maximum stays the same, keep_c is exactly 1.
template <int threads = scan_threads, bool whole = false, class Logits>
__device__ void decayed_max(float* max_c, float* keep_c, float* add_c, const Logits& logit, float slope, int C,
                            int block, PoolingOrder order) {
  const DecayedMaxima kind{slope, 0};
  scan_positions<threads, whole>(
      kind, C, order,
      [&](int c) {
        return Top{starts(c, C, block, order) ? minus_infinity : 0.0f, logit(c), c};
      },
      [&](int c, const Top& before, const Top& now) {
        const float most = kind.at(now, c), newcomer = logit(c);
        const float kept = expf(kind.at(before, c) - most), added = expf(newcomer - most);
        max_c[c] = most;  // (pooling_decay.3)
        const bool first = starts(c, C, block, order), nothing_new = newcomer == minus_infinity;
        keep_c[c] = first ? 0 : nothing_new || now.from != c ? 1 : kept;
        add_c[c] = nothing_new ? 0 : added;
      });
}

// Running maximum with or without decay, in order of increasing position.
template <bool decays, int threads = scan_threads, bool whole = false, class Logits>
__device__ void running_max(float* max_c, float* keep_c, float* add_c, const Logits& logit, float slope, int C,
                            int block, PoolingOrder order) {
  if constexpr (decays) {
    decayed_max<threads, whole>(max_c, keep_c, add_c, logit, slope, C, block, order);
  } else {
    running_max<threads, whole>(max_c, keep_c, add_c, logit, C, block, order);
  }
}

// The same in order of decreasing position: earlier maxima stay, and logits added later have decayed by a slope per
// position since the first position of the block.
template <bool decays, class Logits>
__device__ void running_max_of_older(float* max_c, float* keep_c, float* add_c, const Logits& logit, float slope, int C,
                                     int block, PoolingOrder order) {
  if constexpr (decays) {
    const auto aged = [&](int c) {
      const int begin = c / block * block, end = min_of(begin + block, C) - 1;
      return logit(c) - slope * float(order == PoolingOrder::up ? c - begin : end - c);  // (pooling_sliding_window.8)
    };
    running_max(max_c, keep_c, add_c, aged, C, block, order);
  } else {
    running_max(max_c, keep_c, add_c, logit, C, block, order);
  }
}

}  // namespace ABH_BACKEND
}  // namespace abh
