#include "cuda/kernel.hpp"
#include "cuda/pooling_scan.hpp"
#include "layers/pooling.hpp"

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

// Positions in a block: the window, or the whole sequence for a global one.
int block_of(const PoolingShape& s) { return int(s.window > 0 && s.window < s.C ? s.window : s.C); }

// Whether c is the first position of a block in this order.
__device__ bool starts(int c, int C, int block, Order order) {
  return order == Order::up ? c % block == 0 : c == C - 1 || c % block == block - 1;
}

// max_c: the largest logit of the block so far. keep_c and add_c: what a sum relative to the maximum before, and the
// newcomer, are multiplied with; one of the two is 1. keep_c is 0 at the start of a block, 1 where nothing is added.
template <class Logits>
__device__ void running_max(float* max_c, float* keep_c, float* add_c, const Logits& logit, int C, int block,
                            Order order) {
  scan_positions<Maxima>(
      C, order,
      [&](int c) {
        return Step{starts(c, C, block, order) ? minus_infinity : 0.0f, logit(c)};
      },
      [&](int c, float before, float most) {
        max_c[c] = most;  // (pooling.2) (pooling.15)
        // -infinity less -infinity is never computed: a newcomer that counts makes the maximum finite.
        const float newcomer = logit(c);
        const bool first = starts(c, C, block, order), nothing_new = newcomer == minus_infinity;
        keep_c[c] = first ? 0 : nothing_new ? 1 : expf(before - most);
        add_c[c] = nothing_new ? 0 : expf(newcomer - most);
      });
}

// sum_c, relative to the running maximum, and in place of add_c and keep_c the shares of the newcomer and of all that
// was there before: they add up to 1, or are 0 while nothing has been seen. beta is its own quotient, not 1 - alpha,
// which has no digits left where alpha is close to 1.
__device__ void running_sum(float* sum_c, float* beta_c, float* alpha_c, int C, Order order) {
  scan_positions<Sums>(
      C, order,
      [&](int c) {
        return Step{beta_c[c], alpha_c[c]};
      },
      [&](int c, float before, float sum) {
        sum_c[c] = sum;  // (pooling.3), which the scan of Step{keep, add} above has formed
        alpha_c[c] = sum == 0 ? 0 : alpha_c[c] / sum;         // (pooling.4)
        beta_c[c] = sum == 0 ? 0 : beta_c[c] * before / sum;  // (pooling.9)
      });
}

// The logits of one head as pooling sees them.
struct MaskedLogits {
  const float* logit_c;
  const Token* mask_c;  // null: all real
  __device__ float operator()(int c) const { return mask_c && mask_c[c] == 0 ? minus_infinity : logit_c[c]; }
};

// Weights, forward.

// Grid: one block for each head of each sequence. Reads the logits, writes max, sum and the weights: 5 floats a
// position and head, 14 for a window, beside the K numbers of its payload.
struct ForwardWeights {
  float *max_bnc, *sum_bnc;
  float *alpha_bnc, *beta_bnc;  // of prefixes
  // Only for a window: the suffixes, and their share in the merge.
  float *suffix_max_bnc, *suffix_sum_bnc, *suffix_alpha_bnc, *suffix_beta_bnc, *gamma_bnc;
  const float* logit_bnc;
  const Token* mask_bc;
  int C, N, block;
};
__global__ static void forward_weights_kernel(ForwardWeights a) {
  const int C = a.C;
  const Index bn = blockIdx.x, first = bn * C;
  const MaskedLogits logit{a.logit_bnc + first, a.mask_bc ? a.mask_bc + bn / a.N * C : nullptr};
  float *max_c = a.max_bnc + first, *sum_c = a.sum_bnc + first;
  float *alpha_c = a.alpha_bnc + first, *beta_c = a.beta_bnc + first;
  running_max(max_c, beta_c, alpha_c, logit, C, a.block, Order::up);
  running_sum(sum_c, beta_c, alpha_c, C, Order::up);
  if (a.block == C) return;

  float *suffix_max_c = a.suffix_max_bnc + first, *suffix_sum_c = a.suffix_sum_bnc + first;
  float *suffix_alpha_c = a.suffix_alpha_bnc + first, *suffix_beta_c = a.suffix_beta_bnc + first;
  running_max(suffix_max_c, suffix_beta_c, suffix_alpha_c, logit, C, a.block, Order::down);
  running_sum(suffix_sum_c, suffix_beta_c, suffix_alpha_c, C, Order::down);
  __syncthreads();
  for (int c = int(threadIdx.x); c < C; c += scan_threads) {
    // The suffix of the block before that fills up the window; the last position of a block needs none.
    const int begin = c - a.block + 1;
    const bool merges = begin > 0 && begin % a.block != 0;
    const float older = merges ? suffix_max_c[begin] : minus_infinity;
    const float newer = max_c[c];
    const float most = fmaxf(older, newer);
    const float old_sum = older == minus_infinity ? 0 : suffix_sum_c[begin] * expf(older - most);
    const float new_sum = newer == minus_infinity ? 0 : sum_c[c] * expf(newer - most);
    const float sum = old_sum + new_sum;  // (pooling.6)
    max_c[c] = most;
    sum_c[c] = sum;
    a.gamma_bnc[first + c] = sum == 0 ? 0 : old_sum / sum;  // (pooling.7)
  }
}

// Weights, backward, global. Grid: a thread a position and head. passed_on_c is beta_{c+1}.
__global__ static void global_weights_kernel(float* alpha_bnc, float* passed_on_bnc, const float* max_bnc,
                                             const float* sum_bnc, const float* logit_bnc, const Token* mask_bc,
                                             Index BNC, int C, int N) {
  const Index i = Index{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= BNC) return;
  const Index bn = i / C;
  const int c = int(i - bn * C);
  const float logit = MaskedLogits{logit_bnc + bn * C, mask_bc ? mask_bc + bn / N * C : nullptr}(c);
  const float most = max_bnc[i], sum = sum_bnc[i];
  alpha_bnc[i] = logit == minus_infinity ? 0 : expf(logit - most) / sum;  // (pooling.4)
  if (c == C - 1) passed_on_bnc[i] = 0;
  if (c == 0) return;
  const float before = sum_bnc[i - 1];
  passed_on_bnc[i - 1] = before == 0 ? 0 : before * expf(max_bnc[i - 1] - most) / sum;  // (pooling.9)
}

// Weights, backward, windowed: the scans of reversed time. Grid: one block for each head of each sequence.
struct WindowWeights {
  float *keep_down_bnc, *add_down_bnc, *weight_down_bnc;  // weight: e^(logit + top), by the position that is pulled
  float *keep_up_bnc, *add_up_bnc, *weight_up_bnc;
  float* top_bnc;  // scratch
  const float *max_bnc, *sum_bnc, *logit_bnc;
  const Token* mask_bc;
  int C, N, block;
};
// The last window that c lies in, of those that exist.
__device__ int last_window(int c, int C, int block) { return smaller(c + block, C) - 1; }

__global__ static void window_weights_kernel(WindowWeights a) {
  const int C = a.C;
  const Index bn = blockIdx.x, first = bn * C;
  const MaskedLogits logit{a.logit_bnc + first, a.mask_bc ? a.mask_bc + bn / a.N * C : nullptr};
  const float *max_c = a.max_bnc + first, *sum_c = a.sum_bnc + first;
  float* top_c = a.top_bnc + first;
  // A window that saw nothing has no say: not +infinity, and not 0/0 below.
  const auto reversed = [&](int c) { return max_c[c] == minus_infinity ? minus_infinity : -max_c[c]; };
  const auto weight = [&](int c, float top) { return logit(c) == minus_infinity ? 0 : expf(logit(c) + top); };

  running_max(top_c, a.keep_down_bnc + first, a.add_down_bnc + first, reversed, C, a.block, Order::down);
  __syncthreads();
  for (int c = int(threadIdx.x); c < C; c += scan_threads) a.weight_down_bnc[first + c] = weight(c, top_c[c]);
  __syncthreads();
  running_max(top_c, a.keep_up_bnc + first, a.add_up_bnc + first, reversed, C, a.block, Order::up);
  __syncthreads();
  for (int c = int(threadIdx.x); c < C; c += scan_threads) {
    // The first of a block lies in no window of the next one, and the last block has none.
    const int last = last_window(c, C, a.block);
    const bool crosses = last / a.block > c / a.block;
    a.weight_up_bnc[first + c] = crosses ? weight(c, top_c[last]) : 0;
    const float sum = sum_c[c] == 0 ? 1 : sum_c[c];
    a.add_down_bnc[first + c] /= sum;
    a.add_up_bnc[first + c] /= sum;
  }
}

// Gradients of logits, once the dot products of the payload's scans are there: sums over the channels of a head, one
// part for each tile of channels that the head touches.

struct Dots {
  const float* dot_pbnc;
  Index BNC;
  int K, tile_channels;
  // The sum of position i = (b N + n) C + c, in the order of the parts.
  __device__ float operator()(Index i, int n) const {
    const int parts = (n * K + K - 1) / tile_channels - n * K / tile_channels + 1;
    float sum = dot_pbnc[i];
    for (int p = 1; p < parts; ++p) sum += dot_pbnc[p * BNC + i];
    return sum;
  }
};
// Parts that a head may have.
Index most_parts(Index K, Index tile_channels) { return (K + tile_channels - 2) / tile_channels + 1; }

// Grid: one block for each head of each sequence. The drift is a scan from the end of the sequence: its state before c
// is drift_c, and after c drift_{c-1}.
__global__ static void global_d_logit_kernel(float* d_logit_bnc, const float* alpha_bnc, const float* passed_on_bnc,
                                             Dots kappa, int C, int N) {
  const Index bn = blockIdx.x, first = bn * C;
  float* d_logit_c = d_logit_bnc + first;
  scan_positions<Sums>(
      C, Order::down,
      [&](int c) {
        const float local = alpha_bnc[first + c] * kappa(first + c, int(bn % N));
        d_logit_c[c] = local;  // alpha kappa, to which visit adds the rest: the same thread has c both times
        return Step{c > 0 ? passed_on_bnc[first + c - 1] : 0, -local};  // (pooling.14)
      },
      [&](int c, float drift, float) { d_logit_c[c] += alpha_bnc[first + c] * drift; });  // (pooling.13)
}

// Grid: one block for each head of each sequence.
struct WindowGradient {
  float* d_logit_bnc;
  float* pulled_up_bnc;  // scratch
  const float *keep_down_bnc, *add_down_bnc, *weight_down_bnc;
  const float *keep_up_bnc, *add_up_bnc, *weight_up_bnc;
  Dots x_dot, out_dot;  // x . d_x, out . d_out
  int C, N, block;
};
__global__ static void window_d_logit_kernel(WindowGradient a) {
  const Index bn = blockIdx.x, first = bn * a.C;
  const int n = int(bn % a.N);
  scan_positions<Sums>(
      a.C, Order::up,
      [&](int c) {
        return Step{a.keep_up_bnc[first + c], a.add_up_bnc[first + c] * a.out_dot(first + c, n)};
      },
      [&](int c, float, float pulled) { a.pulled_up_bnc[first + c] = pulled; });  // (pooling.16), pull_out
  __syncthreads();
  scan_positions<Sums>(
      a.C, Order::down,
      [&](int c) {
        return Step{a.keep_down_bnc[first + c], a.add_down_bnc[first + c] * a.out_dot(first + c, n)};
      },
      [&](int c, float, float pulled_down) {
        const Index i = first + c;
        const float pulled_up = a.pulled_up_bnc[first + last_window(c, a.C, a.block)];
        const float same = a.weight_down_bnc[i] * pulled_down + a.weight_up_bnc[i] * pulled_up;
        a.d_logit_bnc[i] = a.x_dot(i, n) - same;  // (pooling.18)
      });
}

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
                         .mask_bc = a.mask_bc,
                         .C = C,
                         .N = N,
                         .block = block};
  launch(forward_weights_kernel, blocks_for(BN, 1), scan_threads, 0, device.stream(), w);

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
  launch(global_weights_kernel, blocks_for(BNC, 128), 128, 0, device.stream(), alpha_bnc, passed_on_bnc, a.max_bnc,
         a.sum_bnc, a.logit_bnc, a.mask_bc, BNC, C, N);
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
                        .max_bnc = a.max_bnc,
                        .sum_bnc = a.sum_bnc,
                        .logit_bnc = a.logit_bnc,
                        .mask_bc = a.mask_bc,
                        .C = C,
                        .N = N,
                        .block = block};
  launch(window_weights_kernel, blocks_for(s.B * s.N, 1), scan_threads, 0, device.stream(), w);

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
