#include "extras/chunks/pooling_chunk.hpp"
#include "plain/view.hpp"

namespace abh {

// State after a chunk of a pooled sequence.

template <class Device, class T>
void pooling_zeta(Device&, Accum<T>* zeta_n, const Accum<T>* max_nc, const Accum<T>* sum_nc, Index C, Index N,
                  Accum<T>* low_n) {
  using A = Accum<T>;
  using S = Extended<T>;
  const auto max = array(max_nc, C), sum = array(sum_nc, C);
  for (Index n = 0; n < N; ++n) {
    const S all = S(sum(n, C - 1)) + (low_n ? S(low_n[n]) : S(0));
    const bool sees = all > S(0);
    const S zeta = sees ? S(max(n, C - 1)) + log(all) : S(pooling_nothing);  // (pooling_chunk.1)
    zeta_n[n] = A(zeta);
    if (low_n) low_n[n] = sees ? A(zeta - S(zeta_n[n])) : A(0);
  }
}

ABH_INSTANTIATE(PlainDevice, pooling_zeta)

}  // namespace abh
