#include "cuda/pooling_in_tile.hpp"
#include "layers/pooling_of_all.hpp"
#include "layers/pooling_windowed.hpp"

namespace abh {

// As on the CPU, pooling has two sides. What is one number a position and head (maxima, sums, weights) is computed
// first, by one block a head, which walks through the sequence 1,024 positions at a time. With all weights known, what
// is left for the K channels of a head is one kind of scan, in one direction or the other,
//
//   state_c = keep_c state_{c-1} + add_c in_c          keep_c = 0 where a window's block begins,
//
// be it an average, a suffix or a pull: pooling_scan.hpp runs it over tiles of the sequence. All keep_c lie in [0, 1],
// or are e to the power of differences that add up to little more than 0, so that products of them, which is what tiles
// need to be joined, cannot overflow. They are 1 as long as one maximum stays: an average is scanned as the weighted
// sum above its sum of weights, and divided where it is emitted, and an adjoint as what is below, over sum_c. The form
// beta out + alpha x would be rounded at every position, by as much at each where beta is nearly the same.
//
// Bytes a row of H channels, beside a few numbers a head: with C <= 256, or windows that divide 256, where no
// tile waits for another one,
//
//   forward, global     x once, out once            backward, global     d_out, x, out, d_x once
//   forward, windowed   x twice, suffixes (float)   backward, windowed   d_out twice, x, out, d_x once, pulls (float)
//                       written and read, out once                       written and read
//
// and otherwise what is scanned (x, d_out) is read once more in every scan, from the second-level cache if it fits. Not
// causal: as global, whatever C is; there is no scan, but sums over the tiles (pooling_of_all.cu). Where a tile has
// all of a sequence and of its heads, both sides are one kernel (pooling_in_tile.hpp).

namespace {

// What rounding leaves of the last row, of which sums above those of weights are known in double. Grid: a thread a
// channel.
template <class T>
__global__ void last_rest_kernel(float* rest_h, const double* end_h, const T* out_h, const float* sum_nc,
                                 const float* sum_rest_n, int C, int K, int H) {
  wait_for_kernel_before();
  const int h = int(blockIdx.x * blockDim.x + threadIdx.x), n = h / K;
  if (h >= H) return;
  const double sum = double(sum_nc[Index{n} * C + C - 1]) + sum_rest_n[n];
  rest_h[h] = sum == 0 ? 0 : float(end_h[h] / sum - double(float(out_h[h])));
}

// Pooling. What is one number a position and head is computed once; the payloads that it weighs are scanned one after
// the other, each from its first channel on.

template <int width, class T>
void pooling_forward_global(Gpu& device, const PoolingForward<T>& a) {
  const PoolingShape& s = a.in.shape;
  const int C = int(s.C), N = int(s.N), K = int(s.K);
  const Index H = s.H(), stride = stride_or(a.in.x_stride, H);
  typename Gpu::Scope scratch(device.workspace);
  const ForwardWeights w = forward_weights(device, scratch, a);
  for_each_payload(s, [&](Index, Index first) {
    // The average, as the sum of e^(logit - max) x above that of the weights.
    const Scan<T> prefixes{a.in.x_bch + first, stride, w.keep_bnc, w.add_bnc, PoolingOrder::up, s.B, C, N, K, C, H};
    typename Gpu::Scope ends(device.workspace);
    Past<T> past;
    if (a.first.weight_n) past = {a.in.x_bch + first, a.first.payload_h + first, a.first.weight_n, K};
    if (a.last.weight_n) past.end_h = ends.template take<double>(N * K);
    scan_payload<width>(device, prefixes, EmitState<T>{a.out_bch + first, w.share_bnc},
                        past);  // (pooling.4) (pooling.5)
    if (!past.end_h) return;
    launch(last_rest_kernel<T>, blocks_for(N * K, 128), 128, 0, device.stream(), a.last.payload_h + first, past.end_h,
           a.out_bch + (C - 1) * H + first, a.sum_bnc, a.last.weight_n, C, K, N * K);
  });
}

template <int width, class T>
void pooling_backward_global(Gpu& device, const PoolingBackward<T>& a) {
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
  launch(a.in.slope_n ? global_weights_kernel<true> : global_weights_kernel<false>, blocks_for(BNC, 128), 128, 0,
         device.stream(), w);
  for_each_payload(s, [&](Index p, Index first) {
    const Scan<T> adjoints{a.d_out_bch + first, H, w.keep_bnc, w.share_bnc, PoolingOrder::down, s.B, C, N, K, C, H};
    const EmitGlobalGradient<T> emit{payload_gradient(a, first), w.weight_bnc, {kappa_pbnc + p * parts}};
    scan_payload<width>(device, adjoints, emit);  // (pooling.7), over sum_c
  });
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

}  // namespace

template <class Device, class T>
void pooling_forward(Device& device, const PoolingForward<T>& a) {
  if (a.in.shape.B * a.in.shape.C == 0) return;
  const Index H = a.in.shape.H(), stride = stride_or(a.in.x_stride, H);
  const bool whole = !a.first.weight_n && !a.last.weight_n;
  if (whole && fits_a_tile(a.in.shape) && widest_fits<T>(stride, a.in.x_bch, a.out_bch)) {
    return pooling_forward_in_tile(device, a);
  }
  if (!a.in.shape.causal) return pooling_of_all_forward(device, a);
  if (block_of(a.in.shape) < a.in.shape.C) return pooling_windowed_forward(device, a);
  packs_fit(a.in.shape.K, stride, H, a.in.x_bch, a.out_bch) ? pooling_forward_global<4>(device, a)
                                                            : pooling_forward_global<1>(device, a);
}

template <class Device, class T>
void pooling_backward(Device& device, const PoolingBackward<T>& a) {
  if (a.in.shape.B * a.in.shape.C == 0) return;
  const Index H = a.in.shape.H(), stride = stride_or(a.in.x_stride, H), d_stride = stride_or(a.d_x_stride, H);
  if (fits_a_tile(a.in.shape) && widest_fits<T>(stride, a.in.x_bch, a.out_bch, a.d_out_bch) &&
      widest_fits<T>(d_stride, a.d_x_bch)) {
    return pooling_backward_in_tile(device, a);
  }
  if (!a.in.shape.causal) return pooling_of_all_backward(device, a);
  if (block_of(a.in.shape) < a.in.shape.C) return pooling_windowed_backward(device, a);
  packs_fit(a.in.shape.K, stride, d_stride, a.in.x_bch, a.out_bch, a.d_out_bch, a.d_x_bch)
      ? pooling_backward_global<4>(device, a)
      : pooling_backward_global<1>(device, a);
}

#define INSTANTIATE(T)                                                \
  template decltype(pooling_forward<Gpu, T>) pooling_forward<Gpu, T>; \
  template decltype(pooling_backward<Gpu, T>) pooling_backward<Gpu, T>;
ABH_FOR_EACH_NUMBER(INSTANTIATE)

}  // namespace abh
