#include "extras/positions/rescale.hpp"
#include "plain/view.hpp"

namespace abh {

template <class Device, class T>
void rescale_forward(Device&, const RescaleForward<T>& a) {
  using A = Accum<T>;
  const Index N = a.N, K = a.K;
  const auto out = heads(a.out_bch, a.out_stride, a.BC, N, K);
  const auto in = heads(a.in_bch, a.in_stride, a.BC, N, K);
  const auto deviation = array(a.deviation_bcn, N);
  const Index b = 0;  // all rows as one sequence, because sequences do not matter
  for (Index c = 0; c < a.BC; ++c) {
    for (Index n = 0; n < N; ++n) {
      A sum = A(0), squares = A(0);
      for (Index k = 0; k < K; ++k) sum += in(b, c, n, k);
      const A mean = sum / A(K);  // (rescale.1)
      for (Index k = 0; k < K; ++k) squares += (in(b, c, n, k) - mean) * (in(b, c, n, k) - mean);
      deviation(c, n) = sqrt(squares / A(K - 1));  // (rescale.2)
      for (Index k = 0; k < K; ++k) {
        out(b, c, n, k) = (in(b, c, n, k) - mean) / (deviation(c, n) + A(rescale_epsilon));  // (rescale.3)
      }
    }
  }
}

template <class Device, class T>
void rescale_backward(Device&, const RescaleBackward<T>& a) {
  using A = Accum<T>;
  const Index N = a.N, K = a.K;
  const auto d_in = heads(a.d_in_bch, a.d_in_stride, a.BC, N, K);
  const auto d_out = heads(a.d_out_bch, a.d_out_stride, a.BC, N, K);
  const auto out = heads(a.out_bch, a.out_stride, a.BC, N, K);
  const auto deviation = array(a.deviation_bcn, N);
  const Index b = 0;
  for (Index c = 0; c < a.BC; ++c) {
    for (Index n = 0; n < N; ++n) {
      A mean_d_out = A(0), product = A(0);
      for (Index k = 0; k < K; ++k) {
        mean_d_out += d_out(b, c, n, k) / A(K);
        product += d_out(b, c, n, k) * out(b, c, n, k);
      }
      // A head with equal channels has deviation 0 and no direction, so no correction is needed.
      const bool is_flat = deviation(c, n) == A(0);
      const A along = is_flat ? A(0) : product / (A(K - 1) * deviation(c, n));  // (rescale.4)
      for (Index k = 0; k < K; ++k) {
        const A centred = (d_out(b, c, n, k) - mean_d_out) / (deviation(c, n) + A(rescale_epsilon));
        d_in(b, c, n, k) = centred - along * out(b, c, n, k);  // (rescale.5)
      }
    }
  }
}

ABH_INSTANTIATE(PlainDevice, rescale_forward, rescale_backward)

}  // namespace abh
