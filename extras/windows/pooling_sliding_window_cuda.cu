// Pooling on the GPU over a window. The weights of its merge are computed with those of prefixes (pooling_weights.hpp).

#include "cuda/pooling_epilogues.hpp"
#include "extras/windows/pooling_sliding_window.hpp"

namespace abh {

namespace {

// Weights of the backward pass with a window: scans in reversed time. Grid: one block per head of each sequence.
struct WindowWeights {
  float *keep_down_bnc, *add_down_bnc, *weight_down_bnc;  // weight: e^(logit + level), by position
  float *keep_up_bnc, *add_up_bnc, *weight_up_bnc;
  float* level_bnc;  // scratch
  int* from_bnc;     // scratch, for decay
  const float *max_bnc, *sum_bnc, *logit_bnc;
  const float* slope_n;
  const Token* mask_bc;
  int C, N, block;
};
// The last existing window that contains c.
__device__ inline int last_window(int c, int C, int block) { return min_of(c + block, C) - 1; }

// With decay, logits increase by a slope per position while one maximum of the forward pass stays. An exact comparison
// would replace the maximum at each position or at none, by rounding, and all sums would drift. A maximum within a
// margin therefore stays: any reference is valid, because the sums relative to it are finally multiplied with its
// exponential. Two threads may select differently, so keep_c is computed from their decisions. Stores the references in
// max_c, and their positions in from_c (scratch).
template <class Logits>
__device__ void decayed_reference(float* max_c, int* from_c, float* keep_c, float* add_c, const Logits& logit,
                                  float slope, int C, int block, PoolingOrder order) {
  const DecayedMaxima kind{slope, 0.5f};
  const int before = order == PoolingOrder::up ? -1 : 1;
  scan_positions(
      kind, C, order,
      [&](int c) {
        return Top{starts(c, C, block, order) ? minus_infinity : 0.0f, logit(c), c};
      },
      [&](int c, const Top&, const Top& now) {
        max_c[c] = now.top;
        from_c[c] = now.from;
      });
  const auto top = [&](int c) { return Top{0, max_c[c], from_c[c]}; };
  __syncthreads();
  for (int c = int(threadIdx.x); c < C; c += scan_threads) {
    const float most = kind.at(top(c), c), newcomer = logit(c);
    const bool nothing = most == minus_infinity;
    add_c[c] = newcomer == minus_infinity ? 0 : expf(newcomer - most);
    if (starts(c, C, block, order)) {
      keep_c[c] = 0;
    } else {
      keep_c[c] = nothing || from_c[c] == from_c[c + before] ? 1 : expf(kind.at(top(c + before), c) - most);
    }
  }
  __syncthreads();
  for (int c = int(threadIdx.x); c < C; c += scan_threads) max_c[c] = kind.at(top(c), c);
}

template <bool decays>
__global__ void window_weights_kernel(WindowWeights a) {
  wait_for_kernel_before();
  const int C = a.C;
  const Index bn = blockIdx.x, first = bn * C;
  const MaskedLogits logit{a.logit_bnc + first, a.mask_bc ? a.mask_bc + bn / a.N * C : nullptr};
  const float slope = slope_of<decays>(a.slope_n, int(bn % a.N));
  const float *max_c = a.max_bnc + first, *sum_c = a.sum_bnc + first;
  float* level_c = a.level_bnc + first;
  // A window whose positions are all masked is excluded: not +infinity, and not 0/0 below.
  const auto reversed = [&](int c) { return max_c[c] == minus_infinity ? minus_infinity : -max_c[c]; };
  const auto weight = [&](int c, float level) { return logit(c) == minus_infinity ? 0 : expf(logit(c) + level); };

  // With decay the levels are those of (pooling_sliding_window.9): down at position c, up at the first position of the
  // block.
  if constexpr (decays) {
    decayed_reference(level_c, a.from_bnc + first, a.keep_down_bnc + first, a.add_down_bnc + first, reversed, slope, C,
                      a.block, PoolingOrder::down);
  } else {
    running_max(level_c, a.keep_down_bnc + first, a.add_down_bnc + first, reversed, C, a.block, PoolingOrder::down);
  }
  __syncthreads();
  for (int c = int(threadIdx.x); c < C; c += scan_threads) a.weight_down_bnc[first + c] = weight(c, level_c[c]);
  __syncthreads();
  running_max_of_older<decays>(level_c, a.keep_up_bnc + first, a.add_up_bnc + first, reversed, slope, C, a.block,
                               PoolingOrder::up);
  __syncthreads();
  for (int c = int(threadIdx.x); c < C; c += scan_threads) {
    // The first position of a block is in no window of the next block; the last block has no next one.
    const int last = last_window(c, C, a.block);
    const bool crosses = last / a.block > c / a.block;
    float level = level_c[last];
    if constexpr (decays) level -= slope * float(last / a.block * a.block - c);  // (pooling_sliding_window.9)
    a.weight_up_bnc[first + c] = crosses ? weight(c, level) : 0;
    const float sum = sum_c[c] == 0 ? 1 : sum_c[c];
    a.add_down_bnc[first + c] /= sum;
    a.add_up_bnc[first + c] /= sum;
  }
}

// Grid: one block per head of each sequence.
struct WindowGradient {
  float* d_logit_bnc;
  float* pulled_up_bnc;  // scratch
  const float *keep_down_bnc, *add_down_bnc, *weight_down_bnc;
  const float *keep_up_bnc, *add_up_bnc, *weight_up_bnc;
  Dots x_dot, out_dot;  // x . d_x, out . d_out
  int C, N, block;
  const float* d_lse_bnc;
};
template <bool has_d_lse>
__global__ void window_d_logit_kernel(WindowGradient a) {
  wait_for_kernel_before();
  const Index bn = blockIdx.x, first = bn * a.C;
  const int n = int(bn % a.N);
  const auto pulled_by = [&](float add, int c) {
    if constexpr (has_d_lse) {
      // Not read if all positions of the window are masked.
      return add == 0 ? 0 : add * (a.out_dot(first + c, n) - a.d_lse_bnc[first + c]);  // (pooling_chunk.3)
    } else {
      return add * a.out_dot(first + c, n);
    }
  };
  scan_positions(
      LongSums{}, a.C, PoolingOrder::up,
      [&](int c) {
        return LongStep{a.keep_up_bnc[first + c], pulled_by(a.add_up_bnc[first + c], c)};
      },
      [&](int c, double, double pulled) { a.pulled_up_bnc[first + c] = float(pulled); });  // (pooling_sliding_window.5)
  __syncthreads();
  scan_positions(
      LongSums{}, a.C, PoolingOrder::down,
      [&](int c) {
        return LongStep{a.keep_down_bnc[first + c], pulled_by(a.add_down_bnc[first + c], c)};
      },
      [&](int c, double, double pulled_down) {
        const Index i = first + c;
        const float pulled_up = a.pulled_up_bnc[first + last_window(c, a.C, a.block)];
        const float same = a.weight_down_bnc[i] * float(pulled_down) + a.weight_up_bnc[i] * pulled_up;
        a.d_logit_bnc[i] = a.x_dot(i, n) - same;  // (pooling_sliding_window.7)
      });
}

// A prefix merged with the suffix that completes its window.
template <class T>
struct EmitWindow {
  static constexpr int dots = 0, batch = 2;
  T* out_bch;
  const float* share_bnc;
  const float* suffix_bch;
  const float* gamma_bnc;
  int block, H;
  template <int width>
  struct Loaded {
    Floats<width> suffix;
    float share, gamma;
  };
  template <int width>
  __device__ Loaded<width> fetch(const PoolingPlace& at) const {
    Loaded<width> loaded{};
    loaded.share = share_bnc[at.weight];
    if (at.c < block) return loaded;
    loaded.gamma = gamma_bnc[at.weight];
    loaded.suffix = load<width>(suffix_bch + at.element - Index{block - 1} * H);
    return loaded;
  }
  template <int width>
  __device__ void finish(const PoolingPlace& at, const Loaded<width>& loaded, const Floats<width>&,
                         const Floats<width>& sum, float*) const {
    Floats<width> out;
    for (int v = 0; v < width; ++v) {
      const float prefix = sum.x[v] * loaded.share;
      out.x[v] = prefix + loaded.gamma * (loaded.suffix.x[v] - prefix);  // (pooling_sliding_window.3)
    }
    store<width>(out_bch + at.element, out);
  }
};

// Gradient of the values from the pulls of its own block and of the next, and two dot products for the logits.
template <class T>
struct EmitWindowGradient {
  static constexpr int dots = 2, batch = 1;
  PayloadGradient<T> arrays;
  const float* pull_up_bch;
  const float *weight_down_bnc, *weight_up_bnc;
  float* dot_pbnc[2];  // x . d_x, out . d_out
  int C, block, H;
  template <int width>
  struct Loaded {
    Floats<width> x, out, pull_up;
    float weight_down, weight_up;
  };
  template <int width>
  __device__ Loaded<width> fetch(const PoolingPlace& at) const {
    Loaded<width> loaded{load<width>(arrays.x_bch + at.in_rows(arrays.x_stride)),
                         load<width>(arrays.out_bch + at.element),
                         {},
                         weight_down_bnc[at.weight],
                         weight_up_bnc[at.weight]};
    const int further = last_window(at.c, C, block) - at.c;
    if (loaded.weight_up != 0) loaded.pull_up = load<width>(pull_up_bch + at.element + Index{further} * H);
    return loaded;
  }
  template <int width>
  __device__ void finish(const PoolingPlace& at, const Loaded<width>& loaded, const Floats<width>& d_out,
                         const Floats<width>& pull_down, float* dot) const {
    Floats<width> d_x;
    for (int v = 0; v < width; ++v) {
      d_x.x[v] =
          loaded.weight_down * pull_down.x[v] + loaded.weight_up * loaded.pull_up.x[v];  // (pooling_sliding_window.6)
      dot[0] += loaded.x.x[v] * d_x.x[v];
      dot[1] += loaded.out.x[v] * d_out.x[v];
    }
    arrays.write(at, d_x);
  }
};

template <int width, class T>
void forward_windows(Gpu& device, const PoolingForward<T>& a) {
  const PoolingShape& s = a.in.shape;
  const int C = int(s.C), N = int(s.N), K = int(s.K), block = block_of(s);
  const Index H = s.H(), stride = stride_or(a.in.x_stride, H);
  typename Gpu::Scope scratch(device.workspace);
  const ForwardWeights w =
      a.in.slope_n ? forward_weights<true>(device, scratch, a) : forward_weights<false>(device, scratch, a);
  // Suffixes stay in float: they are merged before the single rounding of the result.
  float* suffix_bch = scratch.template take<float>(s.B * C * H);
  for_each_payload(s, [&](Index, Index first) {
    const T* x_bch = a.in.x_bch + first;
    const Scan<T> prefixes{x_bch, stride, w.keep_bnc, w.add_bnc, PoolingOrder::up, s.B, C, N, K, block, H};
    const Scan<T> suffixes{x_bch, stride, w.suffix_keep_bnc, w.suffix_add_bnc, PoolingOrder::down, s.B, C, N, K,
                           block, H};
    scan_payload<width>(device, suffixes, EmitState<float>{suffix_bch + first, w.suffix_share_bnc});  // (pooling.5)
    scan_payload<width>(device, prefixes,                                                             // (pooling.5)
                        EmitWindow<T>{a.out_bch + first, w.share_bnc, suffix_bch + first, w.gamma_bnc, block, int(H)});
  });
}

template <int width, class T>
void backward_windows(Gpu& device, const PoolingBackward<T>& a) {
  const PoolingShape& s = a.in.shape;
  const int C = int(s.C), N = int(s.N), K = int(s.K), block = block_of(s);
  const Index H = s.H(), BNC = s.B * s.N * C, parts = most_parts(K, tile_channels<width>) * BNC;
  typename Gpu::Scope scratch(device.workspace);
  const auto take = [&](Index count) { return scratch.template take<float>(count); };
  const WindowWeights w{.keep_down_bnc = take(BNC),
                        .add_down_bnc = take(BNC),
                        .weight_down_bnc = take(BNC),
                        .keep_up_bnc = take(BNC),
                        .add_up_bnc = take(BNC),
                        .weight_up_bnc = take(BNC),
                        .level_bnc = take(BNC),
                        .from_bnc = scratch.template take<int>(a.in.slope_n ? BNC : 0),
                        .max_bnc = a.max_bnc,
                        .sum_bnc = a.sum_bnc,
                        .logit_bnc = a.in.logit_bnc,
                        .slope_n = a.in.slope_n,
                        .mask_bc = a.in.mask_bc,
                        .C = C,
                        .N = N,
                        .block = block};
  launch(a.in.slope_n ? window_weights_kernel<true> : window_weights_kernel<false>, blocks_for(s.B * s.N, 1),
         scan_threads, 0, device.stream(), w);

  // Pulls from the next block are partly cancelled by other parts of the gradient, so they stay in float. Up first: the
  // second scan has both sides and completes the gradient.
  float* pull_up_bch = take(s.B * C * H);
  float *x_dot_pbnc = take(s.payloads * parts), *out_dot_pbnc = take(s.payloads * parts);
  for_each_payload(s, [&](Index p, Index first) {
    const T* d_out_bch = a.d_out_bch + first;
    const Scan<T> up{d_out_bch, H, w.keep_up_bnc, w.add_up_bnc, PoolingOrder::up, s.B, C, N, K, block, H};
    const Scan<T> down{d_out_bch, H, w.keep_down_bnc, w.add_down_bnc, PoolingOrder::down, s.B, C, N, K, block, H};
    const EmitWindowGradient<T> emit{payload_gradient(a, first),
                                     pull_up_bch + first,
                                     w.weight_down_bnc,
                                     w.weight_up_bnc,
                                     {x_dot_pbnc + p * parts, out_dot_pbnc + p * parts},
                                     C,
                                     block,
                                     int(H)};
    scan_payload<width>(device, up, EmitState<float>{pull_up_bch + first});  // (pooling_sliding_window.5)
    scan_payload<width>(device, down, emit);                                 // (pooling_sliding_window.5)
  });

  const WindowGradient d_logit{.d_logit_bnc = a.d_logit_bnc,
                               .pulled_up_bnc = w.level_bnc,
                               .keep_down_bnc = w.keep_down_bnc,
                               .add_down_bnc = w.add_down_bnc,
                               .weight_down_bnc = w.weight_down_bnc,
                               .keep_up_bnc = w.keep_up_bnc,
                               .add_up_bnc = w.add_up_bnc,
                               .weight_up_bnc = w.weight_up_bnc,
                               .x_dot = dots_of(device, x_dot_pbnc, s, tile_channels<width>),
                               .out_dot = dots_of(device, out_dot_pbnc, s, tile_channels<width>),
                               .C = C,
                               .N = N,
                               .block = block,
                               .d_lse_bnc = a.d_lse_bnc};
  launch(a.d_lse_bnc ? window_d_logit_kernel<true> : window_d_logit_kernel<false>, blocks_for(s.B * s.N, 1),
         scan_threads, 0, device.stream(), d_logit);
}

}  // namespace

template <class Device, class T>
void pooling_sliding_window_forward(Device& device, const PoolingForward<T>& a) {
  with_packs(a, [&]<int width>() { forward_windows<width>(device, a); });
}

template <class Device, class T>
void pooling_sliding_window_backward(Device& device, const PoolingBackward<T>& a) {
  with_packs(a, [&]<int width>() { backward_windows<width>(device, a); });
}

ABH_INSTANTIATE(Gpu, pooling_sliding_window_forward, pooling_sliding_window_backward)

}  // namespace abh
