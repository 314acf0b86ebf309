#include "plain/pooling_state.hpp"

namespace abh {

template <class Device, class T>
void pooling_forward(Device& device, const PoolingForward<T>& a) {
  if (a.in.shape.causal) {
    pooling_windowed_forward(device, a);
  } else {
    pooling_of_all_forward(device, a);
  }
}

namespace {

template <class Device, class T>
void backward_global(Device& device, const PoolingBackward<T>& a) {
  const auto [B, C, N, K, window, causal, payloads] = a.in.shape;
  const auto x = heads(a.in.x_bch, a.in.x_stride, C, payloads * N, K), out = heads(a.out_bch, 0, C, payloads * N, K);
  const auto d_out = heads(a.d_out_bch, 0, C, payloads * N, K);
  const auto d_x = heads(a.d_x_bch, a.d_x_stride, C, payloads * N, K);
  const auto d_logit = array(a.d_logit_bnc, N, C);
  const auto max = array(a.max_bnc, N, C), sum = array(a.sum_bnc, N, C);
  using S = Longer<T>;
  typename Device::Scope scratch(device.workspace);
  const auto adjoint = array(scratch.template take<S>(payloads * N * K), K);

  for (Index b = 0; b < B; ++b) {
    for (Index n = 0; n < N; ++n) {
      const T slope = slope_of(a.in.slope_n, n);
      S drift = 0, beta_next = 0;  // drift_c and beta_{c+1}: nothing follows the last position
      for (Index m = n; m < payloads * N; m += N) {
        for (Index k = 0; k < K; ++k) adjoint(m, k) = 0;
      }
      for (Index c = C - 1; c >= 0; --c) {
        // alpha is not saved: (pooling.4) again. Of nothing seen so far every share is 0, not 0/0.
        const S total = S(sum(b, n, c)), most = S(max(b, n, c));
        const bool nothing = total == S(0);
        const S share = nothing ? S(0) : S(1) / total;
        const S logit = S(logit_of(a.in, b, n, c));
        const S alpha = power(logit, most) * share;
        S beta = 0;
        if (c > 0) {
          const S aged = logit < most ? most : S(max(b, n, c - 1)) - S(slope);  // (pooling.22)
          beta = S(sum(b, n, c - 1)) * power(aged, most) * share;               // (pooling.9)
        }
        S kappa = 0;
        for (Index m = n; m < payloads * N; m += N) {
          for (Index k = 0; k < K; ++k) {
            adjoint(m, k) = S(d_out(b, c, m, k)) + beta_next * adjoint(m, k);                      // (pooling.10)
            d_x(b, c, m, k) = T(alpha * adjoint(m, k)) + (a.accumulate ? d_x(b, c, m, k) : T(0));  // (pooling.11)
            kappa += (S(x(b, c, m, k)) - S(out(b, c, m, k))) * adjoint(m, k);                      // (pooling.12)
          }
        }
        if (a.d_lse_bnc && !nothing) drift += S(array(a.d_lse_bnc, N, C)(b, n, c));  // (pooling.28)
        d_logit(b, n, c) = T(alpha * (kappa + drift));                               // (pooling.13)
        drift = beta * drift - alpha * kappa;                                        // (pooling.14)
        beta_next = beta;
      }
    }
  }
}

}  // namespace

template <class Device, class T>
void pooling_backward(Device& device, const PoolingBackward<T>& a) {
  if (!a.in.shape.causal) {
    pooling_of_all_backward(device, a);
  } else if (window_of(a.in.shape) < a.in.shape.C) {
    pooling_windowed_backward(device, a);
  } else {
    backward_global(device, a);
  }
}

#define INSTANTIATE(T)                                                                \
  template decltype(pooling_forward<PlainDevice, T>) pooling_forward<PlainDevice, T>; \
  template decltype(pooling_backward<PlainDevice, T>) pooling_backward<PlainDevice, T>;
ABH_FOR_EACH_SCALAR(INSTANTIATE)

}  // namespace abh
