#include "cpu/lanes.hpp"
#include "cpu/math.hpp"
#include "extras/chunks/pooling_chunk.hpp"

namespace abh {

// State after a chunk of a pooled sequence.

template <class Device, class T>
void pooling_zeta(Device& device, Accum<T>* zeta_n, const Accum<T>* max_nc, const Accum<T>* sum_nc, Index C, Index N,
                  Accum<T>* low_n) {
  using A = Accum<T>;
  using S = Extended<T>;
  on_one_thread(device, [&] {
    for (Index n = 0; n < N; ++n) {
      const S sum = S(sum_nc[(n + 1) * C - 1]) + (low_n ? S(low_n[n]) : S(0));
      const bool sees = sum > S(0);
      const S zeta = sees ? S(max_nc[(n + 1) * C - 1]) + natural_log(sum) : S(pooling_nothing);  // (pooling_chunk.1)
      zeta_n[n] = A(zeta);
      if (low_n) low_n[n] = sees ? A(zeta - S(zeta_n[n])) : A(0);
    }
  });
}

ABH_INSTANTIATE(Cpu, pooling_zeta)

}  // namespace abh
