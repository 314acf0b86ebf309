#include "layers/pooling.hpp"
#include "plain/view.hpp"

namespace abh {

// Pooling, what lies behind a chunk of a sequence.

template <class Device, class T>
void pooling_zeta(Device&, Accum<T>* zeta_n, const Accum<T>* max_nc, const Accum<T>* sum_nc, Index C, Index N) {
  const auto max = array(max_nc, C), sum = array(sum_nc, C);
  for (Index n = 0; n < N; ++n) {
    const bool sees = sum(n, C - 1) > T(0);
    zeta_n[n] = sees ? max(n, C - 1) + log(sum(n, C - 1)) : T(pooling_nothing);  // (pooling.30)
  }
}

#define INSTANTIATE(T) template decltype(pooling_zeta<PlainDevice, T>) pooling_zeta<PlainDevice, T>;
ABH_FOR_EACH_SCALAR(INSTANTIATE)

}  // namespace abh
