#include "extras/leap/leap_gate.hpp"
#include "plain/view.hpp"

namespace abh {

namespace {

// Shares of sum e^max, the total weight of a position and head, and of epsilon in their sum.
template <class T>
struct Shares {
  T share, rest;
};
template <class T>
Shares<T> shares_of(T max, T sum) {
  const T log_epsilon = T(log_leap_epsilon);
  const T most = max > log_epsilon ? max : log_epsilon;
  // If all positions are masked, the maximum is -infinity and its exponential is 0.
  const T seen = sum * exp(max - most), total = seen + exp(log_epsilon - most);  // (leap_gate.1)
  const T share = seen / total;                                                  // (leap_gate.2)
  // Not 1 - share, which would be 0 for every share that rounds to 1.
  const T rest = exp(log_epsilon - most) / total;  // (leap_gate.10)
  return {share, rest};
}

}  // namespace

template <class Device, class T>
void leap_gate_forward(Device&, const LeapGateForward<T>& a) {
  using A = Accum<T>;
  const auto& in = a.in;
  const auto out = heads(a.out_bch, 0, in.C, in.N, in.K);
  const auto query = heads(in.query_bch, in.query_stride, in.C, in.N, in.K);
  const auto pooled_key = heads(in.pooled_bcq, 2 * in.N * in.K, in.C, in.N, in.K);
  const auto pooled_value = heads(in.pooled_bcq + in.N * in.K, 2 * in.N * in.K, in.C, in.N, in.K);
  const auto max = array(in.max_bnc, in.N, in.C), sum = array(in.sum_bnc, in.N, in.C);
  for (Index b = 0; b < in.B; ++b) {
    for (Index c = 0; c < in.C; ++c) {
      for (Index n = 0; n < in.N; ++n) {
        const A share = shares_of(max(b, n, c), sum(b, n, c)).share;
        A product = A(0);
        for (Index k = 0; k < in.K; ++k) product += query(b, c, n, k) * pooled_key(b, c, n, k);
        const A score = A(in.scale) * share * product;                                               // (leap_gate.3)
        const A gate = A(1) / (A(1) + exp(-score));                                                  // (leap_gate.4)
        for (Index k = 0; k < in.K; ++k) out(b, c, n, k) = gate * share * pooled_value(b, c, n, k);  // (leap_gate.5)
      }
    }
  }
}

template <class Device, class T>
void leap_gate_backward(Device&, const LeapGateBackward<T>& a) {
  using A = Accum<T>;
  const auto& in = a.in;
  if (in.B * in.C == 0) return;  // the arrays may be null
  const Index H = in.N * in.K;
  const auto d_query = heads(a.d_query_bch, a.d_query_stride, in.C, in.N, in.K);
  const auto d_pooled_key = heads(a.d_pooled_bcq, 2 * H, in.C, in.N, in.K);
  const auto d_pooled_value = heads(a.d_pooled_bcq + H, 2 * H, in.C, in.N, in.K);
  const auto d_lse = array(a.d_lse_bnc, in.N, in.C);
  const auto d_out = heads(a.d_out_bch, 0, in.C, in.N, in.K);
  const auto query = heads(in.query_bch, in.query_stride, in.C, in.N, in.K);
  const auto pooled_key = heads(in.pooled_bcq, 2 * H, in.C, in.N, in.K);
  const auto pooled_value = heads(in.pooled_bcq + H, 2 * H, in.C, in.N, in.K);
  const auto max = array(in.max_bnc, in.N, in.C), sum = array(in.sum_bnc, in.N, in.C);
  const A scale = A(in.scale);
  for (Index b = 0; b < in.B; ++b) {
    for (Index c = 0; c < in.C; ++c) {
      for (Index n = 0; n < in.N; ++n) {
        const auto [share, rest] = shares_of(max(b, n, c), sum(b, n, c));
        A product = A(0), passed = A(0);
        for (Index k = 0; k < in.K; ++k) {
          product += query(b, c, n, k) * pooled_key(b, c, n, k);
          passed += d_out(b, c, n, k) * pooled_value(b, c, n, k);
        }
        const A gate = A(1) / (A(1) + exp(-scale * share * product));
        const A d_score = gate * (A(1) - gate) * share * passed;  // (leap_gate.6)
        A d_share = A(0);                                         // times the share
        for (Index k = 0; k < in.K; ++k) {
          d_query(b, c, n, k) = scale * d_score * share * pooled_key(b, c, n, k);  // (leap_gate.7)
          const A d_key = scale * d_score * share * query(b, c, n, k);             // (leap_gate.8)
          const A d_value = gate * share * d_out(b, c, n, k);                      // (leap_gate.9)
          d_pooled_key(b, c, n, k) = d_key;
          d_pooled_value(b, c, n, k) = d_value;
          d_share += d_key * pooled_key(b, c, n, k) + d_value * pooled_value(b, c, n, k);
        }
        d_lse(b, n, c) = rest * d_share;  // (leap_gate.11)
      }
    }
  }
}

ABH_INSTANTIATE(PlainDevice, leap_gate_forward, leap_gate_backward)

}  // namespace abh
