#include "cpu/lanes.hpp"
#include "cpu/math.hpp"
#include "layers/pooling.hpp"

namespace abh {

// Pooling, what lies behind a chunk of a sequence.

namespace {
constexpr Index positions_per_task = 32;
}

template <class Device, class T>
void pooling_place(Device& device, const PoolingPlace<T>& a) {
  using A = Accum<T>;
  parallel_pieces(device, a.P, positions_per_task, [&](Index begin, Index end) {
    for (Index n = 0; n < a.N; ++n) {
      A* to = a.to.logit_np + n * a.to.logit_stride;
      const A* from = a.from.logit_np + n * a.from.logit_stride;
      for (Index p = begin; p < end; ++p) to[p] = a.add ? to[p] + from[p] : from[p];  // (pooling.31)
    }
    for (Index p = begin; p < end; ++p) {
      T* to = a.to.x_ph + p * a.to.x_stride;
      const T* from = a.from.x_ph + p * a.from.x_stride;
      for_lanes<T>(a.H, [&]<class L>(Index h) {
        store<L>(to + h, a.add ? load<L>(to + h) + load<L>(from + h) : load<L>(from + h));  // (pooling.31)
      });
    }
  });
}

template <class Device, class T>
void pooling_zeta(Device& device, Accum<T>* zeta_n, const Accum<T>* max_nc, const Accum<T>* sum_nc, Index C, Index N) {
  on_one_thread(device, [&] {
    for (Index n = 0; n < N; ++n) {
      const T max = max_nc[(n + 1) * C - 1], sum = sum_nc[(n + 1) * C - 1];
      zeta_n[n] = sum > T(0) ? max + natural_log(sum) : T(pooling_nothing);  // (pooling.30)
    }
  });
}

#define INSTANTIATE(T)                                            \
  template decltype(pooling_place<Cpu, T>) pooling_place<Cpu, T>; \
  template decltype(pooling_zeta<Cpu, T>) pooling_zeta<Cpu, T>;
ABH_FOR_EACH_SCALAR(INSTANTIATE)

}  // namespace abh
