#pragma once

// Pooling on the GPU over all positions so far, if a sequence has several tiles or several payloads: both passes,
// without decay (pooling.cu) and with decay (pooling_decay.cu).

#include "cuda/pooling_epilogues.hpp"
#include "cuda/pooling_few_tiles.hpp"

namespace abh {
inline namespace ABH_BACKEND {

// Computes the rounding error of the last output row, from its numerators, the weighted sums, in double. Grid: one
// thread per channel.
template <class T>
__global__ void last_low_kernel(float* low_h, const double* end_h, const T* out_h, const float* sum_nc,
                                const float* sum_low_n, int C, int K, int H) {
  wait_for_kernel_before();
  const int h = int(blockIdx.x * blockDim.x + threadIdx.x), n = h / K;
  if (h >= H) return;
  const double sum = double(sum_nc[Index{n} * C + C - 1]) + sum_low_n[n];
  low_h[h] = sum == 0 ? 0 : float(end_h[h] / sum - double(float(out_h[h])));
}

// Numbers per position and head are computed once. The payloads are then scanned one after another, each from its first
// channel on.

template <bool decays, int width, class T>
void forward_global(Gpu& device, const PoolingForward<T>& a) {
  const PoolingShape& s = a.in.shape;
  const int C = int(s.C), N = int(s.N), K = int(s.K);
  const Index H = s.H(), stride = stride_or(a.in.x_stride, H);
  typename Gpu::Scope scratch(device.workspace);
  const ForwardWeights w = forward_weights<decays>(device, scratch, a);
  for_each_payload(s, [&](Index, Index first) {
    // Average as a quotient: the sum of e^(logit - max) x over the sum of weights.
    const Scan<T> prefixes{a.in.x_bch + first, stride, w.keep_bnc, w.add_bnc, PoolingOrder::up, s.B, C, N, K, C, H};
    typename Gpu::Scope ends(device.workspace);
    Past<T> past;
    if (a.first.weight_n) past = {a.in.x_bch + first, a.first.payload_h + first, a.first.weight_n, K};
    if (a.last.weight_n) past.end_h = ends.template take<double>(N * K);
    scan_payload<width>(device, prefixes, EmitState<T>{a.out_bch + first, w.share_bnc},  // (pooling.4) (pooling.5)
                        past);
    if (!past.end_h) return;
    launch(last_low_kernel<T>, blocks_for(N * K, 128), 128, 0, device.stream(), a.last.payload_h + first, past.end_h,
           a.out_bch + (C - 1) * H + first, a.sum_bnc, a.last.weight_n, C, K, N * K);
  });
}

template <bool decays, int width, class T>
void backward_global(Gpu& device, const PoolingBackward<T>& a) {
  const PoolingShape& s = a.in.shape;
  const int C = int(s.C), N = int(s.N), K = int(s.K);
  const Index H = s.H(), BNC = s.B * s.N * C, parts = most_parts(K, tile_channels<width>) * BNC;
  typename Gpu::Scope scratch(device.workspace);
  const GlobalWeights w{.weight_bnc = scratch.template take<float>(BNC),
                        .keep_bnc = scratch.template take<float>(BNC),
                        .share_bnc = scratch.template take<float>(BNC),
                        .max_bnc = a.max_bnc,
                        .sum_bnc = a.sum_bnc,
                        .logit_bnc = a.in.logit_bnc,
                        .slope_n = a.in.slope_n,
                        .mask_bc = a.in.mask_bc,
                        .BNC = BNC,
                        .C = C,
                        .N = N};
  float* kappa_pbnc = scratch.template take<float>(s.payloads * parts);
  if (width == tiles_width && fits_few_tiles(s)) {
    pooling_backward_in_tiles<decays>(device, a, w, kappa_pbnc);
  } else {
    launch(global_weights_kernel<decays>, blocks_for(BNC, 128), 128, 0, device.stream(), w);
    for_each_payload(s, [&](Index p, Index first) {
      const Scan<T> adjoints{a.d_out_bch + first, H, w.keep_bnc, w.share_bnc, PoolingOrder::down, s.B, C, N, K, C, H};
      const EmitGlobalGradient<T> emit{payload_gradient(a, first), w.weight_bnc, {kappa_pbnc + p * parts}};
      scan_payload<width>(device, adjoints, emit);  // (pooling.7), over sum_c
    });
  }
  const GlobalGradient d_logit{.d_logit_bnc = a.d_logit_bnc,
                               .weight_bnc = w.weight_bnc,
                               .keep_bnc = w.keep_bnc,
                               .share_bnc = w.share_bnc,
                               .sum_bnc = a.sum_bnc,
                               .d_lse_bnc = a.d_lse_bnc,
                               .kappa = dots_of(device, kappa_pbnc, s, tile_channels<width>),
                               .C = C,
                               .N = N};
  launch(a.d_lse_bnc ? global_d_logit_kernel<true> : global_d_logit_kernel<false>, blocks_for(s.B * s.N, 1),
         scan_threads, 0, device.stream(), d_logit);
}

template <bool decays, class T>
void pooling_forward_global(Gpu& device, const PoolingForward<T>& a) {
  const bool whole = !a.first.weight_n && !a.last.weight_n;
  with_packs(a, [&]<int width>() {
    if (width == tiles_width && whole && fits_few_tiles(a.in.shape)) {
      pooling_forward_in_tiles<decays>(device, a);
    } else {
      forward_global<decays, width>(device, a);
    }
  });
}

template <bool decays, class T>
void pooling_backward_global(Gpu& device, const PoolingBackward<T>& a) {
  with_packs(a, [&]<int width>() { backward_global<decays, width>(device, a); });
}

}  // namespace ABH_BACKEND
}  // namespace abh
