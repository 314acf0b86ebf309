#include "cuda/partial_sums.hpp"
#include "cuda/pooling_global.hpp"
#include "cuda/pooling_one_tile.hpp"
#include "layers/parts/pooling_with_logits.hpp"
#include "layers/pooling_decay.hpp"

namespace abh {

// As on the CPU, pooling has two parts. First, the numbers per position and head (maxima, sums, weights) are computed
// by one block per head, which loops over the sequence 1,024 positions at a time. With all weights known, the
// computation for the K channels of a head is one kind of scan, in either direction,
//
//   state_c = keep_c state_{c-1} + add_c in_c          keep_c = 0 where a window's block begins,
//
// for an average, a suffix or a pull; pooling_scan.hpp runs it over tiles of the sequence. All keep_c are in [0, 1], or
// exponentials of differences that sum to little more than 0, so their products, which join tiles, cannot overflow.
// They are 1 while one maximum stays: an average is scanned as the weighted sum and the sum of weights, and divided
// when it is emitted; an adjoint is scanned divided by sum_c. The form beta out + alpha x would be rounded at every
// position, always by the same amount if beta is nearly constant.
//
// Bytes per row of H channels, in addition to a few numbers per head, if C <= 256 or the window divides 256, so that no
// tile waits for another:
//
//   forward, global     x once, out once            backward, global     d_out, x, out, d_x once
//   forward, windowed   x twice, suffixes (float)   backward, windowed   d_out twice, x, out, d_x once, pulls (float)
//                       written and read, out once                       written and read
//
// Otherwise the scanned array (x, d_out) is read once more in every scan, from the L2 cache if it fits. Without causal
// mask: as without window, for any C; there is no scan, but sums over the tiles (pooling_bidirectional.cu). If a tile
// holds a whole sequence and all channels of its heads, both parts are one kernel (pooling_one_tile.hpp), which may
// also compute the logits.

namespace {

template <class T>
bool in_tile(const PoolingForward<T>& a) {
  return !a.first.weight_n && !a.last.weight_n && fits_a_tile(a.in.shape) &&
         widest_fits<T>(stride_or(a.in.x_stride, a.in.shape.H()), a.in.x_bch, a.out_bch);
}
template <class T>
bool in_tile(const PoolingBackward<T>& a) {
  const Index H = a.in.shape.H();
  return fits_a_tile(a.in.shape) && widest_fits<T>(stride_or(a.in.x_stride, H), a.in.x_bch, a.out_bch, a.d_out_bch) &&
         widest_fits<T>(stride_or(a.d_x_stride, H), a.d_x_bch);
}

template <class T>
PoolingLogitsInputs<T> inputs_of_logits(const PoolingInputs<T>& in, const T* pool_nk) {
  const PoolingShape& s = in.shape;
  return {.x_bch = in.x_bch, .x_stride = in.x_stride, .pool_nk = pool_nk, .B = s.B, .C = s.C, .N = s.N, .K = s.K};
}

}  // namespace

template <class Device, class T>
void pooling_forward(Device& device, const PoolingForward<T>& a) {
  if (a.in.shape.B * a.in.shape.C == 0) return;
  if (in_tile(a)) return pooling_forward_in_tile(device, a);
  if constexpr (has_extras) {
    if (!a.in.shape.causal) return pooling_bidirectional_forward(device, a);
    if (block_of(a.in.shape) < a.in.shape.C) return pooling_sliding_window_forward(device, a);
  }
  if (a.in.slope_n) return pooling_decay_forward(device, a);
  pooling_forward_global<false>(device, a);
}

template <class Device, class T>
void pooling_backward(Device& device, const PoolingBackward<T>& a) {
  if (a.in.shape.B * a.in.shape.C == 0) return;
  if (in_tile(a)) return pooling_backward_in_tile(device, a);
  if constexpr (has_extras) {
    if (!a.in.shape.causal) return pooling_bidirectional_backward(device, a);
    if (block_of(a.in.shape) < a.in.shape.C) return pooling_sliding_window_backward(device, a);
  }
  if (a.in.slope_n) return pooling_decay_backward(device, a);
  pooling_backward_global<false>(device, a);
}

template <class Device, class T>
void pooling_with_logits_forward(Device& device, const PoolingWithLogitsForward<T>& a) {
  const PoolingInputs<T>& in = a.pooling.in;
  if (in.shape.B * in.shape.C > 0 && in_tile(a.pooling) && widest_fits<T>(0, a.pool_nk)) {
    return pooling_forward_in_tile(device, a.pooling,
                                   MadeLogits<T>{a.pool_nk, scale_of_head(in.shape.K), a.logit_bnc, nullptr});
  }
  pooling_logits_forward<Device, T>(device, {.logit_bnc = a.logit_bnc, .in = inputs_of_logits(in, a.pool_nk)});
  pooling_forward<Device, T>(device, a.pooling);
}

template <class Device, class T>
void gated_pooling_forward(Device& device, const GatedPoolingForward<T>& a) {
  const PoolingForward<T>& pooling = a.pooled.pooling;
  const PoolingShape& s = pooling.in.shape;
  const Index stride = stride_or(a.gate.in.gate_stride, s.H());
  if (s.B * s.C > 0 && in_tile(pooling) && begins_block(a.gate.in.dropout) && widest_fits<T>(0, a.pooled.pool_nk) &&
      widest_fits<T>(stride, a.gate.in.gate_bcd, a.gate.out_bcd, a.gate.residual_bcd)) {
    return pooling_forward_in_tile(device, pooling,
                                   MadeLogits<T>{a.pooled.pool_nk, scale_of_head(s.K), a.pooled.logit_bnc, nullptr},
                                   GateOfAverages<T>{a.gate.out_bcd, a.gate.residual_bcd, a.gate.in.gate_bcd,
                                                     int(stride), mask_of(a.gate.in.dropout)});
  }
  pooling_with_logits_forward<Device, T>(device, a.pooled);
  gate_forward<Device, T>(device, a.gate);
}

template <class Device, class T>
void pooling_with_logits_backward(Device& device, const PoolingWithLogitsBackward<T>& a) {
  const PoolingBackward<T>& pooling = a.pooling;
  const PoolingShape& s = pooling.in.shape;
  if constexpr (keeps_gradients<T>) {
    if (s.B * s.C > 0 && in_tile(pooling) && widest_fits<T>(0, a.pool_nk)) {
      const Index H = s.N * s.K;
      typename Device::Scope scratch(device.workspace);
      float* part_bh = take_parts(device, scratch, s.B * H);
      pooling_backward_in_tile(device, pooling, MadeLogits<T>{a.pool_nk, scale_of_head(s.K), nullptr, part_bh});
      return add_partial_sums(device, {.to_d = a.d_pool_nk, .part_pd = part_bh, .parts = s.B, .D = H, .stride = H});
    }
  }
  pooling_backward<Device, T>(device, pooling);
  pooling_logits_backward<Device, T>(device, {.d_x_bch = pooling.d_x_bch,
                                              .d_x_stride = pooling.d_x_stride,
                                              .d_pool_nk = a.d_pool_nk,
                                              .d_logit_bnc = pooling.d_logit_bnc,
                                              .in = inputs_of_logits(pooling.in, a.pool_nk)});
}

ABH_INSTANTIATE(Gpu, pooling_forward, pooling_backward, pooling_with_logits_forward, gated_pooling_forward,
                pooling_with_logits_backward)

}  // namespace abh
