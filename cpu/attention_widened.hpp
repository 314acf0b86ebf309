#pragma once

// The arguments of attention in bf16 (layers/attention.hpp), as floats.

#include "cpu/widened.hpp"
#include "layers/attention.hpp"

namespace abh {

namespace {

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
