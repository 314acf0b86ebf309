#include "cuda/pooling_scan.hpp"
#include "cuda/pooling_weights.hpp"

namespace abh {

// As on the CPU, pooling has two sides. What is one number a position and head (maxima, sums, weights) is computed
// first, by one block a head, which walks through the sequence 1,024 positions at a time. With all weights known, what
// is left for the K channels of a head is one kind of scan, in one direction or the other,
//
//   state_c = keep_c state_{c-1} + add_c in_c          keep_c = 0 where a window's block begins,
//
// be it an average, a suffix, an adjoint or a pull: pooling_scan.hpp runs it over tiles of the sequence. All keep_c
// lie in [0, 1], so that products of them, which is what tiles need to be joined, cannot overflow.
//
// Bytes a row of H = N K channels, beside a few numbers a head: with C <= 256, or windows that divide 256, where no
// tile waits for another one,
//
//   forward, global     x once, out once            backward, global     d_out, x, out, d_x once
//   forward, windowed   x twice, suffixes (float)   backward, windowed   d_out twice, x, out, d_x once, pulls (float)
//                       written and read, out once                       written and read
//
// and otherwise what is scanned (x, d_out) is read once more in every scan, from the second-level cache if it fits.

inline namespace ABH_BACKEND {

// What scans of the payload do to a state: the average, in the form beta out + alpha x with beta = 1 - alpha, the
// adjoint and the pulls, whose tags stand where they are started. In terms of keep and add, since that is what runs and
// tiles are joined with; the price is that a constant payload stays constant up to rounding only.
template <int width>
__device__ __forceinline__ void advance(Floats<width>& state, Step step, const Floats<width>& in) {
  for (int v = 0; v < width; ++v) {
    const float added = step.add * in.x[v];
    state.x[v] = step.keep * state.x[v] + added;
  }
}

}  // namespace ABH_BACKEND

namespace {

// Scans of the payload: what is made of a state.

// The state itself.
template <class Out>
struct EmitState {
  static constexpr int dots = 0, batch = 4;
  Out* out_bch;
  template <int width>
  struct Loaded {};
  template <int width>
  __device__ Loaded<width> fetch(const Place&) const {
    return {};
  }
  template <int width>
  __device__ void finish(const Place& at, const Loaded<width>&, const Floats<width>&, const Floats<width>& state,
                         float*) const {
    store<width>(out_bch + at.element, state);
  }
};

// A prefix merged with the suffix that fills up its window.
template <class T>
struct EmitWindow {
  static constexpr int dots = 0, batch = 4;
  T* out_bch;
  const float* suffix_bch;
  const float* gamma_bnc;
  int block, H;
  template <int width>
  struct Loaded {
    Floats<width> suffix;
    float gamma;
  };
  template <int width>
  __device__ Loaded<width> fetch(const Place& at) const {
    Loaded<width> loaded{};
    if (at.c < block) return loaded;
    loaded.gamma = gamma_bnc[at.weight];
    loaded.suffix = load<width>(suffix_bch + at.element - Index{block - 1} * H);
    return loaded;
  }
  template <int width>
  __device__ void finish(const Place& at, const Loaded<width>& loaded, const Floats<width>&,
                         const Floats<width>& prefix, float*) const {
    Floats<width> out;
    for (int v = 0; v < width; ++v) {
      out.x[v] = prefix.x[v] + loaded.gamma * (loaded.suffix.x[v] - prefix.x[v]);  // (pooling.8)
    }
    store<width>(out_bch + at.element, out);
  }
};

// What both gradients of the payload read and write besides.
template <class T>
struct PayloadGradient {
  T* d_x_bch;
  Index d_x_stride;
  bool accumulate;
  const T* x_bch;
  Index x_stride;
  const T* out_bch;

  template <int width>
  __device__ void write(const Place& at, Floats<width> gradient) const {
    T* to = d_x_bch + at.bc * d_x_stride + at.h;
    if (accumulate) {
      const Floats<width> before = load<width>(to);
      for (int v = 0; v < width; ++v) gradient.x[v] += before.x[v];
    }
    store<width>(to, gradient);
  }
};
template <class T>
PayloadGradient<T> payload_gradient(const PoolingBackward<T>& a) {
  const Index H = a.shape.N * a.shape.K;
  return {a.d_x_bch, stride_or(a.d_x_stride, H), a.accumulate, a.x_bch, stride_or(a.x_stride, H), a.out_bch};
}

// The gradient of the payload from the adjoint, and kappa.
template <class T>
struct EmitGlobalGradient {
  static constexpr int dots = 1, batch = 2;
  PayloadGradient<T> arrays;
  const float* alpha_bnc;
  float* dot_pbnc[1];  // kappa
  template <int width>
  struct Loaded {
    Floats<width> x, out;
    float alpha;
  };
  template <int width>
  __device__ Loaded<width> fetch(const Place& at) const {
    return {load<width>(arrays.x_bch + at.bc * arrays.x_stride + at.h), load<width>(arrays.out_bch + at.element),
            alpha_bnc[at.weight]};
  }
  template <int width>
  __device__ void finish(const Place& at, const Loaded<width>& loaded, const Floats<width>&,
                         const Floats<width>& adjoint, float* dot) const {
    Floats<width> d_x;
    for (int v = 0; v < width; ++v) {
      d_x.x[v] = loaded.alpha * adjoint.x[v];                      // (pooling.11)
      dot[0] += (loaded.x.x[v] - loaded.out.x[v]) * adjoint.x[v];  // (pooling.12)
    }
    arrays.write(at, d_x);
  }
};

// The gradient of the payload from the pulls of its own block and of the next, and two dot products for the logits'.
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
  __device__ Loaded<width> fetch(const Place& at) const {
    Loaded<width> loaded{load<width>(arrays.x_bch + at.bc * arrays.x_stride + at.h),
                         load<width>(arrays.out_bch + at.element),
                         {},
                         weight_down_bnc[at.weight],
                         weight_up_bnc[at.weight]};
    const int further = last_window(at.c, C, block) - at.c;
    if (loaded.weight_up != 0) loaded.pull_up = load<width>(pull_up_bch + at.element + Index{further} * H);
    return loaded;
  }
  template <int width>
  __device__ void finish(const Place& at, const Loaded<width>& loaded, const Floats<width>& d_out,
                         const Floats<width>& pull_down, float* dot) const {
    Floats<width> d_x;
    for (int v = 0; v < width; ++v) {
      d_x.x[v] = loaded.weight_down * pull_down.x[v] + loaded.weight_up * loaded.pull_up.x[v];  // (pooling.17)
      dot[0] += loaded.x.x[v] * d_x.x[v];
      dot[1] += loaded.out.x[v] * d_out.x[v];
    }
    arrays.write(at, d_x);
  }
};

// Pooling.

template <int width, class T>
void pooling_forward(Gpu& device, const PoolingForward<T>& a) {
  const PoolingShape& s = a.shape;
  const int C = int(s.C), N = int(s.N), K = int(s.K), block = block_of(s);
  const Index H = s.N * s.K, BN = s.B * s.N, stride = stride_or(a.x_stride, H);
  typename Gpu::Scope scratch(device.workspace);
  const auto take = [&](Index count) { return scratch.template take<float>(count); };
  const Index window_BNC = block < C ? BN * C : 0;
  const ForwardWeights w{.max_bnc = a.max_bnc,
                         .sum_bnc = a.sum_bnc,
                         .alpha_bnc = take(BN * C),
                         .beta_bnc = take(BN * C),
                         .suffix_max_bnc = take(window_BNC),
                         .suffix_sum_bnc = take(window_BNC),
                         .suffix_alpha_bnc = take(window_BNC),
                         .suffix_beta_bnc = take(window_BNC),
                         .gamma_bnc = take(window_BNC),
                         .logit_bnc = a.logit_bnc,
                         .slope_n = a.slope_n,
                         .mask_bc = a.mask_bc,
                         .C = C,
                         .N = N,
                         .block = block};
  launch(a.slope_n ? forward_weights_kernel<true> : forward_weights_kernel<false>, blocks_for(BN, 1), scan_threads, 0,
         device.stream(), w);

  // The scan runs out = beta out + alpha x, which is the average moved by alpha, as beta = 1 - alpha.
  const Scan<T> prefixes{a.x_bch, stride, w.beta_bnc, w.alpha_bnc, Order::up, s.B, C, N, K, block};
  if (block == C) {
    scan_payload<width>(device, prefixes, EmitState<T>{a.out_bch});  // (pooling.5)
    return;
  }
  // Suffixes stay in float: they are merged before the result is rounded, once.
  float* suffix_bch = take(s.B * C * H);
  const Scan<T> suffixes{a.x_bch, stride, w.suffix_beta_bnc, w.suffix_alpha_bnc, Order::down, s.B, C, N, K, block};
  scan_payload<width>(device, suffixes, EmitState<float>{suffix_bch});  // (pooling.5)
  scan_payload<width>(device, prefixes,
                      EmitWindow<T>{a.out_bch, suffix_bch, w.gamma_bnc, block, int(H)});  // (pooling.5)
}

template <int width, class T>
void pooling_backward_global(Gpu& device, const PoolingBackward<T>& a) {
  const PoolingShape& s = a.shape;
  const int C = int(s.C), N = int(s.N), K = int(s.K);
  const Index H = s.N * s.K, BNC = s.B * s.N * C;
  typename Gpu::Scope scratch(device.workspace);
  float* alpha_bnc = scratch.template take<float>(BNC);
  float* passed_on_bnc = scratch.template take<float>(BNC);
  float* kappa_pbnc = scratch.template take<float>(most_parts(K, tile_lanes * width) * BNC);
  launch(a.slope_n ? global_weights_kernel<true> : global_weights_kernel<false>, blocks_for(BNC, 128), 128, 0,
         device.stream(), alpha_bnc, passed_on_bnc, a.max_bnc, a.sum_bnc, a.logit_bnc, a.slope_n, a.mask_bc, BNC, C, N);
  const Scan<T> adjoints{a.d_out_bch, H, passed_on_bnc, nullptr, Order::down, s.B, C, N, K, C};
  scan_payload<width>(device, adjoints,
                      EmitGlobalGradient<T>{payload_gradient(a), alpha_bnc, {kappa_pbnc}});  // (pooling.10)
  launch(global_d_logit_kernel, blocks_for(s.B * s.N, 1), scan_threads, 0, device.stream(), a.d_logit_bnc, alpha_bnc,
         passed_on_bnc, Dots{kappa_pbnc, BNC, K, tile_lanes * width}, C, N);
}

template <int width, class T>
void pooling_backward_windowed(Gpu& device, const PoolingBackward<T>& a) {
  const PoolingShape& s = a.shape;
  const int C = int(s.C), N = int(s.N), K = int(s.K), block = block_of(s);
  const Index H = s.N * s.K, BNC = s.B * s.N * C, dots = most_parts(K, tile_lanes * width) * BNC;
  typename Gpu::Scope scratch(device.workspace);
  const auto take = [&](Index count) { return scratch.template take<float>(count); };
  const WindowWeights w{.keep_down_bnc = take(BNC),
                        .add_down_bnc = take(BNC),
                        .weight_down_bnc = take(BNC),
                        .keep_up_bnc = take(BNC),
                        .add_up_bnc = take(BNC),
                        .weight_up_bnc = take(BNC),
                        .top_bnc = take(BNC),
                        .from_bnc = scratch.template take<int>(a.slope_n ? BNC : 0),
                        .max_bnc = a.max_bnc,
                        .sum_bnc = a.sum_bnc,
                        .logit_bnc = a.logit_bnc,
                        .slope_n = a.slope_n,
                        .mask_bc = a.mask_bc,
                        .C = C,
                        .N = N,
                        .block = block};
  launch(a.slope_n ? window_weights_kernel<true> : window_weights_kernel<false>, blocks_for(s.B * s.N, 1), scan_threads,
         0, device.stream(), w);

  // Pulls from the next block are only part of a gradient whose other parts cancel them: they stay in float. Up first:
  // the second scan has both sides at hand and finishes the gradient.
  float* pull_up_bch = take(s.B * C * H);
  const Scan<T> up{a.d_out_bch, H, w.keep_up_bnc, w.add_up_bnc, Order::up, s.B, C, N, K, block};
  const Scan<T> down{a.d_out_bch, H, w.keep_down_bnc, w.add_down_bnc, Order::down, s.B, C, N, K, block};
  const EmitWindowGradient<T> emit{
      payload_gradient(a), pull_up_bch, w.weight_down_bnc, w.weight_up_bnc, {take(dots), take(dots)}, C, block, int(H)};
  scan_payload<width>(device, up, EmitState<float>{pull_up_bch});  // (pooling.16)
  scan_payload<width>(device, down, emit);                         // (pooling.16)

  const auto sums = [&](const float* dot_pbnc) { return Dots{dot_pbnc, BNC, K, tile_lanes * width}; };
  const WindowGradient d_logit{.d_logit_bnc = a.d_logit_bnc,
                               .pulled_up_bnc = w.top_bnc,
                               .keep_down_bnc = w.keep_down_bnc,
                               .add_down_bnc = w.add_down_bnc,
                               .weight_down_bnc = w.weight_down_bnc,
                               .keep_up_bnc = w.keep_up_bnc,
                               .add_up_bnc = w.add_up_bnc,
                               .weight_up_bnc = w.weight_up_bnc,
                               .x_dot = sums(emit.dot_pbnc[0]),
                               .out_dot = sums(emit.dot_pbnc[1]),
                               .C = C,
                               .N = N,
                               .block = block};
  launch(window_d_logit_kernel, blocks_for(s.B * s.N, 1), scan_threads, 0, device.stream(), d_logit);
}

template <int width, class T>
void pooling_backward(Gpu& device, const PoolingBackward<T>& a) {
  block_of(a.shape) < a.shape.C ? pooling_backward_windowed<width>(device, a)
                                : pooling_backward_global<width>(device, a);
}

}  // namespace

template <class Device, class T>
void pooling_forward(Device& device, const PoolingForward<T>& a) {
  if (a.shape.B * a.shape.C == 0) return;
  const Index H = a.shape.N * a.shape.K;
  packs_fit(a.shape.K, stride_or(a.x_stride, H), H, a.x_bch, a.out_bch) ? pooling_forward<4>(device, a)
                                                                        : pooling_forward<1>(device, a);
}

template <class Device, class T>
void pooling_backward(Device& device, const PoolingBackward<T>& a) {
  if (a.shape.B * a.shape.C == 0) return;
  const Index H = a.shape.N * a.shape.K;
  packs_fit(a.shape.K, stride_or(a.x_stride, H), stride_or(a.d_x_stride, H), a.x_bch, a.out_bch, a.d_out_bch, a.d_x_bch)
      ? pooling_backward<4>(device, a)
      : pooling_backward<1>(device, a);
}

#define INSTANTIATE(T)                                                \
  template decltype(pooling_forward<Gpu, T>) pooling_forward<Gpu, T>; \
  template decltype(pooling_backward<Gpu, T>) pooling_backward<Gpu, T>;
ABH_FOR_EACH_NUMBER(INSTANTIATE)

}  // namespace abh
