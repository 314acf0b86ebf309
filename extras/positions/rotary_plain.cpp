#include "extras/positions/rotary.hpp"
#include "plain/view.hpp"

namespace abh {

template <class Device, class T>
void rotary_forward(Device&, const RotaryForward<T>& a) {
  using A = Accum<T>;
  const Index C = a.C, N = a.N, K = a.K;
  const auto out = heads(a.out_bch, a.out_stride, C, N, K);
  const auto in = heads(a.in_bch, a.in_stride, C, N, K);
  const auto turn = array(a.turn_ck, K);
  for (Index b = 0; b < a.B; ++b) {
    for (Index c = 0; c < C; ++c) {
      for (Index n = 0; n < N; ++n) {  // the same angles in every head
        for (Index k = 0; k + 1 < K; k += 2) {
          const A cosine = turn(c, k), sine = turn(c, k + 1);
          // Both are read before either is written, because out may be in.
          const A first = in(b, c, n, k), second = in(b, c, n, k + 1);
          out(b, c, n, k) = cosine * first - sine * second;      // (rotary.1)
          out(b, c, n, k + 1) = sine * first + cosine * second;  // (rotary.2)
        }
        if (K % 2 == 1) out(b, c, n, K - 1) = in(b, c, n, K - 1);  // (rotary.3)
      }
    }
  }
}

template <class Device, class T>
void rotary_backward(Device&, const RotaryBackward<T>& a) {
  using A = Accum<T>;
  const Index C = a.C, N = a.N, K = a.K;
  const auto d_in = heads(a.d_in_bch, a.d_in_stride, C, N, K);
  const auto d_out = heads(a.d_out_bch, a.d_out_stride, C, N, K);
  const auto turn = array(a.turn_ck, K);
  for (Index b = 0; b < a.B; ++b) {
    for (Index c = 0; c < C; ++c) {
      for (Index n = 0; n < N; ++n) {
        for (Index k = 0; k + 1 < K; k += 2) {
          const A cosine = turn(c, k), sine = turn(c, k + 1);
          const A d_first = d_out(b, c, n, k), d_second = d_out(b, c, n, k + 1);
          d_in(b, c, n, k) = cosine * d_first + sine * d_second;      // (rotary.4)
          d_in(b, c, n, k + 1) = cosine * d_second - sine * d_first;  // (rotary.5)
        }
        if (K % 2 == 1) d_in(b, c, n, K - 1) = d_out(b, c, n, K - 1);  // (rotary.6)
      }
    }
  }
}

ABH_INSTANTIATE(PlainDevice, rotary_forward, rotary_backward)

}  // namespace abh
