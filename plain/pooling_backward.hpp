#pragma once

// Backward pass of the running average.

#include "plain/pooling_state.hpp"

namespace abh {

namespace {

// max_before(b, n, c): maximum of position c - 1 as used by position c; decay lowers it.
template <class Device, class T, class MaxBefore>
void backward_of_average(Device& device, const PoolingBackward<T>& a, const MaxBefore& max_before) {
  using A = Accum<T>;
  const auto [B, C, N, K, window, causal, payloads] = a.in.shape;
  const auto x = heads(a.in.x_bch, a.in.x_stride, C, payloads * N, K), out = heads(a.out_bch, 0, C, payloads * N, K);
  const auto d_out = heads(a.d_out_bch, 0, C, payloads * N, K);
  const auto d_x = heads(a.d_x_bch, a.d_x_stride, C, payloads * N, K);
  const auto d_logit = array(a.d_logit_bnc, N, C);
  const auto max = array(a.max_bnc, N, C), sum = array(a.sum_bnc, N, C);
  using S = Extended<T>;
  typename Device::Scope scratch(device.workspace);
  const auto adjoint = array(scratch.template take<S>(payloads * N * K), K);

  for (Index b = 0; b < B; ++b) {
    for (Index n = 0; n < N; ++n) {
      S drift = 0, beta_next = 0;  // drift_c and beta_{c+1}: both are 0 after the last position
      for (Index m = n; m < payloads * N; m += N) {
        for (Index k = 0; k < K; ++k) adjoint(m, k) = 0;
      }
      for (Index c = C - 1; c >= 0; --c) {
        // alpha is not saved: recomputed by (pooling.4). Before the first unmasked position every share is 0, not 0/0.
        const bool nothing = sum(b, n, c) == A(0);
        const S share = nothing ? S(0) : S(1) / S(sum(b, n, c)), most = S(max(b, n, c));
        const S alpha = exp_shifted(S(logit_of(a.in, b, n, c)), most) * share;
        S beta = 0;
        if (c > 0) beta = S(sum(b, n, c - 1)) * exp_shifted(max_before(b, n, c), most) * share;  // (pooling.6)
        S kappa = 0;
        for (Index m = n; m < payloads * N; m += N) {
          for (Index k = 0; k < K; ++k) {
            adjoint(m, k) = S(d_out(b, c, m, k)) + beta_next * adjoint(m, k);                      // (pooling.7)
            d_x(b, c, m, k) = A(alpha * adjoint(m, k)) + (a.accumulate ? d_x(b, c, m, k) : A(0));  // (pooling.8)
            kappa += (S(x(b, c, m, k)) - S(out(b, c, m, k))) * adjoint(m, k);                      // (pooling.9)
          }
        }
        if (a.d_lse_bnc && !nothing) drift += S(array(a.d_lse_bnc, N, C)(b, n, c));  // (pooling_chunk.2)
        d_logit(b, n, c) = A(alpha * (kappa + drift));                               // (pooling.10)
        drift = beta * drift - alpha * kappa;                                        // (pooling.11)
        beta_next = beta;
      }
    }
  }
}

}  // namespace

}  // namespace abh
