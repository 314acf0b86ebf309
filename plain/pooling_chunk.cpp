#include "layers/pooling.hpp"
#include "plain/view.hpp"

namespace abh {

// Pooling, what lies behind a chunk of a sequence.

template <class Device, class T>
void pooling_place(Device&, const PoolingPlace<T>& a) {
  const auto to_logit = array(a.to.logit_np, a.to.logit_stride);
  const auto from_logit = array(a.from.logit_np, a.from.logit_stride);
  const auto to_x = array(a.to.x_ph, a.to.x_stride);
  const auto from_x = array(a.from.x_ph, a.from.x_stride);
  for (Index p = 0; p < a.P; ++p) {
    for (Index n = 0; n < a.N; ++n) {
      to_logit(n, p) = a.add ? to_logit(n, p) + from_logit(n, p) : from_logit(n, p);  // (pooling.31)
    }
    for (Index h = 0; h < a.H; ++h) {
      to_x(p, h) = a.add ? to_x(p, h) + from_x(p, h) : from_x(p, h);  // (pooling.31)
    }
  }
}

template <class Device, class T>
void pooling_zeta(Device&, Accum<T>* zeta_n, const Accum<T>* max_nc, const Accum<T>* sum_nc, Index C, Index N) {
  const auto max = array(max_nc, C), sum = array(sum_nc, C);
  for (Index n = 0; n < N; ++n) {
    const bool sees = sum(n, C - 1) > T(0);
    zeta_n[n] = sees ? max(n, C - 1) + log(sum(n, C - 1)) : T(pooling_nothing);  // (pooling.30)
  }
}

#define INSTANTIATE(T)                                                            \
  template decltype(pooling_place<PlainDevice, T>) pooling_place<PlainDevice, T>; \
  template decltype(pooling_zeta<PlainDevice, T>) pooling_zeta<PlainDevice, T>;
ABH_FOR_EACH_SCALAR(INSTANTIATE)

}  // namespace abh
