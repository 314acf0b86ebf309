#include "extras/bidirectional/pooling_bidirectional.hpp"
#include "plain/pooling_state.hpp"

namespace abh {

template <class Device, class T>
void pooling_bidirectional_forward(Device&, const PoolingForward<T>& a) {
  using A = Accum<T>;
  using S = Extended<T>;
  const auto [B, C, N, K, window, causal, payloads] = a.in.shape;
  const auto x = heads(a.in.x_bch, a.in.x_stride, C, payloads * N, K);
  const auto out = heads(a.out_bch, 0, C, payloads * N, K);
  const auto max = array(a.max_bnc, N, C), sum = array(a.sum_bnc, N, C);
  for (Index b = 0; b < B; ++b) {
    for (Index n = 0; n < N; ++n) {
      A most = A(-infinity);
      S total = S(0);
      for (Index c = 0; c < C; ++c) {
        const A logit = logit_of(a.in, b, n, c);
        if (logit > most) most = logit;
      }
      for (Index c = 0; c < C; ++c) total += S(exp_shifted(logit_of(a.in, b, n, c), most));
      for (Index c = 0; c < C; ++c) {
        max(b, n, c) = most;
        sum(b, n, c) = A(total);
      }
      for (Index m = n; m < payloads * N; m += N) {
        for (Index k = 0; k < K; ++k) {
          S average = S(0);
          for (Index c = 0; c < C; ++c) {
            const S alpha = total == S(0) ? S(0) : S(exp_shifted(logit_of(a.in, b, n, c), most)) / total;
            average += alpha * S(x(b, c, m, k));  // (pooling_bidirectional.1)
          }
          for (Index c = 0; c < C; ++c) out(b, c, m, k) = A(average);
        }
      }
    }
  }
}

template <class Device, class T>
void pooling_bidirectional_backward(Device&, const PoolingBackward<T>& a) {
  using A = Accum<T>;
  const auto [B, C, N, K, window, causal, payloads] = a.in.shape;
  const auto x = heads(a.in.x_bch, a.in.x_stride, C, payloads * N, K), out = heads(a.out_bch, 0, C, payloads * N, K);
  const auto d_out = heads(a.d_out_bch, 0, C, payloads * N, K);
  const auto d_x = heads(a.d_x_bch, a.d_x_stride, C, payloads * N, K);
  const auto d_logit = array(a.d_logit_bnc, N, C);
  const auto max = array(a.max_bnc, N, C), sum = array(a.sum_bnc, N, C);
  using S = Extended<T>;
  for (Index b = 0; b < B; ++b) {
    for (Index n = 0; n < N; ++n) {
      S d_lse = 0;
      for (Index c = 0; c < C; ++c) {
        d_logit(b, n, c) = A(0);
        if (a.d_lse_bnc) d_lse += S(array(a.d_lse_bnc, N, C)(b, n, c));
      }
      const auto alpha_of = [&, b = b, n = n](Index c) {
        return sum(b, n, c) == A(0) ? S(0) : S(exp_shifted(logit_of(a.in, b, n, c), max(b, n, c))) / S(sum(b, n, c));
      };
      for (Index m = n; m < payloads * N; m += N) {
        for (Index k = 0; k < K; ++k) {
          S adjoint = 0;
          for (Index c = 0; c < C; ++c) adjoint += S(d_out(b, c, m, k));
          for (Index c = 0; c < C; ++c) {
            const S alpha = alpha_of(c);
            d_x(b, c, m, k) =
                A(alpha * adjoint) + (a.accumulate ? d_x(b, c, m, k) : A(0));  // (pooling_bidirectional.2)
            d_logit(b, n, c) +=
                A(alpha * (S(x(b, c, m, k)) - S(out(b, c, m, k))) * adjoint);  // (pooling_bidirectional.3)
          }
        }
      }
      for (Index c = 0; c < C; ++c) {
        const S alpha = alpha_of(c);
        if (alpha != S(0)) d_logit(b, n, c) += A(alpha * d_lse);  // (pooling_bidirectional.3)
      }
    }
  }
}

ABH_INSTANTIATE(PlainDevice, pooling_bidirectional_forward, pooling_bidirectional_backward)

}  // namespace abh
