#pragma once

// Arguments of attention in bf16 (layers/attention.hpp), converted to float.

#include "cpu/attention_tiles.hpp"
#include "cpu/widened.hpp"
#include "layers/attention.hpp"

namespace abh {

namespace {

// Sequences [b.begin, b.end) of a batch.
inline AttentionInputs<bf16> sequences(AttentionInputs<bf16> in, Stretch b) {
  const Index H = in.N * in.K;
  in.query_bch += b.begin * in.C * stride_or(in.query_stride, H);
  in.key_bsh += b.begin * in.S * stride_or(in.key_stride, H);
  in.value_bsh += b.begin * in.S * stride_or(in.value_stride, H);
  if (in.mask.mask_bs) in.mask.mask_bs += b.begin * in.S;
  in.B = b.end - b.begin;
  return in;
}
inline AttentionForward<bf16> sequences(AttentionForward<bf16> a, Stretch b) {
  a.out_bch += b.begin * a.in.C * a.in.N * a.in.K;
  a.lse_bnc += b.begin * a.in.N * a.in.C;
  a.in = sequences(a.in, b);
  return a;
}
inline AttentionBackward<bf16> sequences(AttentionBackward<bf16> a, Stretch b) {
  const Index H = a.in.N * a.in.K, first_query = b.begin * a.in.C, first_key = b.begin * a.in.S;
  a.d_query_bch += first_query * stride_or(a.d_query_stride, H);
  a.d_key_bsh += first_key * stride_or(a.d_key_stride, H);
  a.d_value_bsh += first_key * stride_or(a.d_value_stride, H);
  a.d_out_bch += first_query * H;
  a.out_bch += first_query * H;
  a.lse_bnc += first_query * a.in.N;
  a.in = sequences(a.in, b);
  return a;
}

// Calls body(b) for a few sequences b at a time, enough for several threads: their floats are still in cache when they
// are used, and scratch memory does not grow with the batch.
template <class Body>
void for_sequences(const AttentionInputs<bf16>& in, const Body& body) {
  const Index at_once = blocks_of(enough_tasks, in.N * max_of(blocks_of(in.C, most_rows), 1));
  for (Index b = 0; b < in.B; b += at_once) body(Stretch{b, min_of(b + at_once, in.B)});
}

template <class Device>
AttentionInputs<float> widened(Widened<Device>& wide, const AttentionInputs<bf16>& in) {
  const Index H = in.N * in.K;
  return {.query_bch = wide.in(in.query_bch, in.B * in.C, H, in.query_stride),
          .key_bsh = wide.in(in.key_bsh, in.B * in.S, H, in.key_stride),
          .value_bsh = wide.in(in.value_bsh, in.B * in.S, H, in.value_stride),
          .mask = in.mask,
          .scale = in.scale,
          .B = in.B,
          .C = in.C,
          .S = in.S,
          .N = in.N,
          .K = in.K};
}

template <class Device>
AttentionForward<float> widened(Widened<Device>& wide, const AttentionForward<bf16>& a) {
  return {.out_bch = wide.out(a.out_bch, a.in.B * a.in.C, a.in.N * a.in.K),
          .lse_bnc = a.lse_bnc,
          .in = widened(wide, a.in)};
}

template <class Device>
AttentionBackward<float> widened(Widened<Device>& wide, const AttentionBackward<bf16>& a) {
  const Index H = a.in.N * a.in.K, BC = a.in.B * a.in.C, BS = a.in.B * a.in.S;
  return {.d_query_bch = wide.out(a.d_query_bch, BC, H, a.d_query_stride),
          .d_key_bsh = wide.out(a.d_key_bsh, BS, H, a.d_key_stride),
          .d_value_bsh = wide.out(a.d_value_bsh, BS, H, a.d_value_stride),
          .d_out_bch = wide.in(a.d_out_bch, BC, H),
          .out_bch = wide.in(a.out_bch, BC, H),
          .lse_bnc = a.lse_bnc,
          .in = widened(wide, a.in)};
}

template <class Device>
AttentionBiasBackward<float> widened(Widened<Device>& wide, const AttentionBiasBackward<bf16>& a) {
  const Index H = a.in.N * a.in.K, BC = a.in.B * a.in.C;
  return {.d_distance_bias_np = a.d_distance_bias_np,
          .first_n = a.first_n,
          .most = a.most,
          .d_out_bch = wide.in(a.d_out_bch, BC, H),
          .out_bch = wide.in(a.out_bch, BC, H),
          .lse_bnc = a.lse_bnc,
          .in = widened(wide, a.in)};
}

}  // namespace

}  // namespace abh
