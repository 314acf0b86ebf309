#include "layers/pooling_decay.hpp"
#include "plain/pooling_backward.hpp"

namespace abh {

template <class Device, class T>
void pooling_forward(Device& device, const PoolingForward<T>& a) {
  using A = Accum<T>;
  const auto [B, C, N, K, window, causal, payloads] = a.in.shape;
  if constexpr (has_extras) {
    if (!causal) return pooling_bidirectional_forward(device, a);
    if (window_of(a.in.shape) < C) return pooling_sliding_window_forward(device, a);
  }
  if (a.in.slope_n || a.first.weight_n || a.last.weight_n) return pooling_decay_forward(device, a);
  using S = Extended<T>;
  const auto x = heads(a.in.x_bch, a.in.x_stride, C, payloads * N, K);
  const auto out = heads(a.out_bch, 0, C, payloads * N, K);
  const auto max_saved = array(a.max_bnc, N, C), sum_saved = array(a.sum_bnc, N, C);
  typename Device::Scope scratch(device.workspace);
  const auto average = array(scratch.template take<S>(payloads * N * K), K);
  for (Index b = 0; b < B; ++b) {
    for (Index n = 0; n < N; ++n) {
      S max = S(-infinity), sum = 0;  // state before the first position
      for (Index m = n; m < payloads * N; m += N) {
        for (Index k = 0; k < K; ++k) average(m, k) = 0;
      }
      // kept(): rounds to the precision of the decode state, so that decoding gives the same results.
      for (Index c = 0; c < C; ++c) {
        const S logit = S(logit_of(a.in, b, n, c)), max_before = max;
        max = logit < max_before ? max_before : logit;                                // (pooling.2)
        sum = kept<A>(sum * exp_shifted(max_before, max) + exp_shifted(logit, max));  // (pooling.3)
        const S alpha = sum == S(0) ? S(0) : exp_shifted(logit, max) / sum;           // (pooling.4)
        for (Index m = n; m < payloads * N; m += N) {
          for (Index k = 0; k < K; ++k) {
            average(m, k) = kept<A>(average(m, k) + alpha * (S(x(b, c, m, k)) - average(m, k)));  // (pooling.5)
            out(b, c, m, k) = A(average(m, k));
          }
        }
        max_saved(b, n, c) = A(max);
        sum_saved(b, n, c) = A(sum);
      }
    }
  }
}

template <class Device, class T>
void pooling_backward(Device& device, const PoolingBackward<T>& a) {
  if constexpr (has_extras) {
    if (!a.in.shape.causal) return pooling_bidirectional_backward(device, a);
    if (window_of(a.in.shape) < a.in.shape.C) return pooling_sliding_window_backward(device, a);
  }
  if (a.in.slope_n) return pooling_decay_backward(device, a);
  const auto max = array(a.max_bnc, a.in.shape.N, a.in.shape.C);
  backward_of_average(device, a, [&](Index b, Index n, Index c) { return Extended<T>(max(b, n, c - 1)); });
}

ABH_INSTANTIATE(PlainDevice, pooling_forward, pooling_backward)

}  // namespace abh
