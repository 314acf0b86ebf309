#include "cpu/lanes.hpp"
#include "cpu/math.hpp"
#include "layers/pooling.hpp"

namespace abh {

// Pooling, what lies behind a chunk of a sequence.

template <class Device, class T>
void pooling_zeta(Device& device, Accum<T>* zeta_n, const Accum<T>* max_nc, const Accum<T>* sum_nc, Index C, Index N) {
  on_one_thread(device, [&] {
    for (Index n = 0; n < N; ++n) {
      const T max = max_nc[(n + 1) * C - 1], sum = sum_nc[(n + 1) * C - 1];
      zeta_n[n] = sum > T(0) ? max + natural_log(sum) : T(pooling_nothing);  // (pooling.30)
    }
  });
}

#define INSTANTIATE(T) template decltype(pooling_zeta<Cpu, T>) pooling_zeta<Cpu, T>;
ABH_FOR_EACH_SCALAR(INSTANTIATE)

}  // namespace abh
