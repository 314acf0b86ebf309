#pragma once

// Pooling on the GPU, numbers per position and head: weights before the scan of values, and gradients of logits after
// it. Kernels with one block per head use the scans of pooling_weight_scans.hpp.

#include "cuda/pooling_decay.hpp"
#include "cuda/pooling_scan.hpp"
#include "layers/pooling.hpp"

namespace abh {
inline namespace ABH_BACKEND {

// Positions per block: the window, or the whole sequence without a window.
inline int block_of(const PoolingShape& s) { return int(s.window > 0 && s.window < s.C ? s.window : s.C); }

// Masked logits of one head.
struct MaskedLogits {
  const float* logit_c;
  const Token* mask_c;  // null: no position is masked
  __device__ float operator()(int c) const { return mask_c && mask_c[c] == 0 ? minus_infinity : logit_c[c]; }
};

// Weights of the forward pass.

// Grid: one block per head of each sequence. Reads the logits, writes max, sum and the weights: 6 floats per position
// and head, 16 with a window, compared with K numbers of its values.
struct ForwardWeights {
  float *max_bnc, *sum_bnc;
  float *keep_bnc, *add_bnc, *share_bnc;  // of prefixes; share = reciprocal of their sum
  // Only with a window: the suffixes, and their share in the merge.
  float *suffix_max_bnc, *suffix_sum_bnc, *suffix_keep_bnc, *suffix_add_bnc, *suffix_share_bnc, *gamma_bnc;
  const float* logit_bnc;
  const float* slope_n;
  const Token* mask_bc;
  int C, N, block;
  PoolingLowPart<const float> first{};
  PoolingLowPart<float> last{};
};
template <bool decays>
__global__ void forward_weights_kernel(ForwardWeights a) {
  wait_for_kernel_before();
  const int C = a.C;
  const Index bn = blockIdx.x, first = bn * C;
  const MaskedLogits logit{a.logit_bnc + first, a.mask_bc ? a.mask_bc + bn / a.N * C : nullptr};
  const float slope = slope_of<decays>(a.slope_n, int(bn % a.N));
  float *max_c = a.max_bnc + first, *sum_c = a.sum_bnc + first;
  float *keep_c = a.keep_bnc + first, *add_c = a.add_bnc + first;
  running_max<decays>(max_c, keep_c, add_c, logit, slope, C, a.block, PoolingOrder::up);
  running_sum(sum_c, a.share_bnc + first, keep_c, add_c, C, PoolingOrder::up,
              a.first.weight_n ? a.first.weight_n[bn] : 0, a.last.weight_n ? a.last.weight_n + bn : nullptr);
  // A first position that represents many is the start state of the scan of values, with full precision, not one of its
  // terms. Thread 0 has it in the scans above.
  if (a.first.weight_n && threadIdx.x == 0) {
    keep_c[0] = 1;
    add_c[0] = 0;
  }
  if (a.block == C) return;

  float *suffix_max_c = a.suffix_max_bnc + first, *suffix_sum_c = a.suffix_sum_bnc + first;
  float *suffix_keep_c = a.suffix_keep_bnc + first, *suffix_add_c = a.suffix_add_bnc + first;
  running_max_of_older<decays>(suffix_max_c, suffix_keep_c, suffix_add_c, logit, slope, C, a.block, PoolingOrder::down);
  running_sum(suffix_sum_c, a.suffix_share_bnc + first, suffix_keep_c, suffix_add_c, C, PoolingOrder::down);
  __syncthreads();
  for (int c = int(threadIdx.x); c < C; c += scan_threads) {
    // Suffix of the previous block that completes the window; not needed at the last position of a block.
    const int begin = c - a.block + 1;
    const bool merges = begin > 0 && begin % a.block != 0;
    float older = merges ? suffix_max_c[begin] : minus_infinity;
    if constexpr (decays) older -= slope * float(c % a.block + 1);  // (pooling_sliding_window.8)
    const float newer = max_c[c];
    const float most = fmaxf(older, newer);
    const float old_sum = older == minus_infinity ? 0 : suffix_sum_c[begin] * expf(older - most);
    const float new_sum = newer == minus_infinity ? 0 : sum_c[c] * expf(newer - most);
    const float sum = old_sum + new_sum;  // (pooling_sliding_window.1)
    max_c[c] = most;
    sum_c[c] = sum;
    a.gamma_bnc[first + c] = sum == 0 ? 0 : old_sum / sum;  // (pooling_sliding_window.2)
  }
}

// Computes the weights, in scratch memory.
template <bool decays, class Scope, class T>
ForwardWeights forward_weights(Gpu& device, Scope& scratch, const PoolingForward<T>& a) {
  const PoolingShape& s = a.in.shape;
  const Index BN = s.B * s.N, BNC = BN * s.C, window_BNC = block_of(s) < s.C ? BNC : 0;
  const auto take = [&](Index count) { return scratch.template take<float>(count); };
  const ForwardWeights w{.max_bnc = a.max_bnc,
                         .sum_bnc = a.sum_bnc,
                         .keep_bnc = take(BNC),
                         .add_bnc = take(BNC),
                         .share_bnc = take(BNC),
                         .suffix_max_bnc = take(window_BNC),
                         .suffix_sum_bnc = take(window_BNC),
                         .suffix_keep_bnc = take(window_BNC),
                         .suffix_add_bnc = take(window_BNC),
                         .suffix_share_bnc = take(window_BNC),
                         .gamma_bnc = take(window_BNC),
                         .logit_bnc = a.in.logit_bnc,
                         .slope_n = a.in.slope_n,
                         .mask_bc = a.in.mask_bc,
                         .C = int(s.C),
                         .N = int(s.N),
                         .block = block_of(s),
                         .first = a.first,
                         .last = a.last};
  launch(forward_weights_kernel<decays>, blocks_for(BN, 1), scan_threads, 0, device.stream(), w);
  return w;
}

// Weights, backward, without window: those of a pull, the adjoint divided by sum_c, pulled_c = keep_{c+1} pulled_{c+1}
// + d_out_c / sum_c. The product of beta over many positions would lose precision; instead keep is e^(aged_{c+1} -
// max_{c+1}), which is 1 while one maximum stays. Grid: one thread per position and head.
struct GlobalWeights {
  float *weight_bnc, *keep_bnc, *share_bnc;  // e^(logit - max); keep_{c+1}; one over the sum, 0 where there is none
  const float *max_bnc, *sum_bnc, *logit_bnc;
  const float* slope_n;
  const Token* mask_bc;
  Index BNC;
  int C, N;
};
// Weights of one position of a head. Without decay the slope is not read.
template <bool decays>
__device__ void global_weights(float* weight_c, float* keep_c, float* share_c, int c, const float* max_c,
                               const float* sum_c, const MaskedLogits& logit_c, float slope, int C) {
  const float logit = logit_c(c), most = max_c[c], sum = sum_c[c];
  weight_c[c] = logit == minus_infinity ? 0 : expf(logit - most);
  share_c[c] = sum == 0 ? 0 : 1 / sum;
  if (c == C - 1) keep_c[c] = 0;
  if (c == 0) return;
  float aged = max_c[c - 1];
  if constexpr (decays) aged = logit < most ? most : aged - slope;  // (pooling_decay.4)
  keep_c[c - 1] = sum_c[c - 1] == 0 ? 0 : expf(aged - most);
}
// beta_c, from sum and keep of the previous position.
__device__ inline double global_beta(int c, const float* sum_c, const float* keep_c) {
  if (c == 0 || sum_c[c] == 0) return 0;
  return sum_c[c - 1] * double(keep_c[c - 1]) / sum_c[c];  // (pooling.6)
}
template <bool decays>
__global__ void global_weights_kernel(GlobalWeights a) {
  wait_for_kernel_before();
  const Index i = Index{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= a.BNC) return;
  const Index bn = i / a.C, first = bn * a.C;
  global_weights<decays>(a.weight_bnc + first, a.keep_bnc + first, a.share_bnc + first, int(i - first),
                         a.max_bnc + first, a.sum_bnc + first,
                         {a.logit_bnc + first, a.mask_bc ? a.mask_bc + bn / a.N * a.C : nullptr},
                         slope_of<decays>(a.slope_n, int(bn % a.N)), a.C);
}

// Gradients of logits from the dot products of the scans of values: sums over the channels of a head, one part per tile
// of channels of the head, as stored by pooling_scan.hpp.

struct Dots {
  const float* dot_pbnc;
  Index BNC;
  int K, tile_channels;
  // Sum of position i = (b N + n) C + c, in the order of the parts.
  __device__ float operator()(Index i, int n) const {
    const int parts = (n * K + K - 1) / tile_channels - n * K / tile_channels + 1;
    float sum = dot_pbnc[i];
    for (int p = 1; p < parts; ++p) sum += dot_pbnc[p * BNC + i];
    return sum;
  }
};
// Maximum number of parts per head.
inline Index most_parts(Index K, Index tile_channels) { return (K + tile_channels - 2) / tile_channels + 1; }

// Adds the dot products of all payloads to the first part of the first payload. Grid: one thread per position and head.
__global__ static void add_payloads_kernel(float* dot_pbnc, Dots first, Index parts, int payloads, int C, int N) {
  wait_for_kernel_before();
  const Index i = Index{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= first.BNC) return;
  float sum = dot_pbnc[i];
  for (int p = 1; p < payloads; ++p) sum += first(p * parts * first.BNC + i, int(i / C % N));
  dot_pbnc[i] = sum;
}
inline Dots dots_of(Gpu& device, float* dot_pbnc, const PoolingShape& s, int tile_channels) {
  const Dots dots{dot_pbnc, s.B * s.N * s.C, int(s.K), tile_channels};
  if (s.payloads > 1) {
    launch(add_payloads_kernel, blocks_for(dots.BNC, 128), 128, 0, device.stream(), dot_pbnc, dots,
           most_parts(s.K, tile_channels), int(s.payloads), int(s.C), int(s.N));
  }
  return dots;
}

// Scan of one head. The drift is a scan from the end of the sequence: its state before c is drift_c, and after c
// drift_{c-1}; with a gradient of the logarithm of the sums, drift_c minus that of c. kappa(c): divided by sum_c.
template <bool has_d_lse, int threads = scan_threads, class Beta, class Kappa>
__device__ void global_d_logit(float* d_logit_c, const float* weight_c, const float* share_c, const float* d_lse_c,
                               const Beta& beta, const Kappa& kappa, int C) {
  // Not read if all positions so far are masked.
  const auto d_lse = [&](int c) { return share_c[c] == 0 ? 0 : d_lse_c[c]; };
  scan_positions<threads>(
      LongSums{}, C, PoolingOrder::down,
      [&](int c) {
        const float local = weight_c[c] * kappa(c);                                     // alpha kappa
        if constexpr (has_d_lse) return LongStep{beta(c), beta(c) * d_lse(c) - local};  // (pooling_chunk.2)
        return LongStep{beta(c), -local};                                               // (pooling.11)
      },
      [&](int c, double drift, double) {
        if constexpr (has_d_lse) drift += d_lse(c);                    // (pooling_chunk.2)
        const float alpha = weight_c[c] * share_c[c];                  // (pooling.4)
        d_logit_c[c] = weight_c[c] * kappa(c) + alpha * float(drift);  // (pooling.10)
      });
}

// Grid: one block for each head of each sequence.
struct GlobalGradient {
  float* d_logit_bnc;
  const float *weight_bnc, *keep_bnc, *share_bnc, *sum_bnc;
  const float* d_lse_bnc;
  Dots kappa;
  int C, N;
};
template <bool has_d_lse>
__global__ void global_d_logit_kernel(GlobalGradient a) {
  wait_for_kernel_before();
  const Index bn = blockIdx.x, first = bn * a.C;
  global_d_logit<has_d_lse>(
      a.d_logit_bnc + first, a.weight_bnc + first, a.share_bnc + first, has_d_lse ? a.d_lse_bnc + first : nullptr,
      [&](int c) { return global_beta(c, a.sum_bnc + first, a.keep_bnc + first); },
      [&](int c) { return a.kappa(first + c, int(bn % a.N)); }, a.C);
}

}  // namespace ABH_BACKEND
}  // namespace abh
