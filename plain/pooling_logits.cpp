#include "layers/pooling_logits.hpp"

#include "plain/view.hpp"

namespace abh {

template <class Device, class T>
void pooling_logits_forward(Device&, const PoolingLogitsForward<T>& a) {
  using A = Accum<T>;
  const auto& in = a.in;
  // Logits are stored by head, (B, N, C), because pooling runs along the positions of one head. x is stored by row.
  const auto logit = array(a.logit_bnc, in.N, in.C);
  const auto x = heads(in.x_bch, in.x_stride, in.C, in.N, in.K);
  const auto pool = array(in.pool_nk, in.K);
  const A scale = A(1 / std::sqrt(static_cast<double>(in.K)));
  for (Index b = 0; b < in.B; ++b) {
    for (Index n = 0; n < in.N; ++n) {
      for (Index c = 0; c < in.C; ++c) {
        A sum = A(0);  // one vector per head, the same at all positions
        for (Index k = 0; k < in.K; ++k) sum += x(b, c, n, k) * pool(n, k);
        logit(b, n, c) = sum * scale;  // (pooling_logits.1)
      }
    }
  }
}

template <class Device, class T>
void pooling_logits_backward(Device&, const PoolingLogitsBackward<T>& a) {
  using A = Accum<T>;
  const auto& in = a.in;
  const auto d_x = heads(a.d_x_bch, a.d_x_stride, in.C, in.N, in.K);
  const auto d_pool = array(a.d_pool_nk, in.K);
  const auto d_logit = array(a.d_logit_bnc, in.N, in.C);
  const auto x = heads(in.x_bch, in.x_stride, in.C, in.N, in.K);
  const auto pool = array(in.pool_nk, in.K);
  const A scale = A(1 / std::sqrt(static_cast<double>(in.K)));
  for (Index n = 0; n < in.N; ++n) {
    for (Index k = 0; k < in.K; ++k) {
      A sum = A(0);  // sum over all positions, because they share this element of pool
      for (Index b = 0; b < in.B; ++b) {
        for (Index c = 0; c < in.C; ++c) {
          // Accumulated: pooling, which reads the same x as values, has already stored its gradient there.
          d_x(b, c, n, k) += d_logit(b, n, c) * pool(n, k) * scale;  // (pooling_logits.2)
          sum += d_logit(b, n, c) * x(b, c, n, k);
        }
      }
      d_pool(n, k) += sum * scale;  // (pooling_logits.3)
    }
  }
}

ABH_INSTANTIATE(PlainDevice, pooling_logits_forward, pooling_logits_backward)

}  // namespace abh
