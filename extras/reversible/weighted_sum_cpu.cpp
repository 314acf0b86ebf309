#include "cpu/lanes.hpp"
#include "extras/reversible/weighted_sum.hpp"

namespace abh {

namespace {

constexpr Index elements_per_task = 16384;

}  // namespace

template <class Device, class T>
void weighted_sum_forward(Device& device, T* out, double p, const T* a, double q, const T* b, Index count) {
  using A = Accum<T>;
  parallel_pieces(device, count, elements_per_task, [=](Index begin, Index end) {
    for_lanes<T>(end - begin, [=]<class L>(Index i) {
      const L p_lanes = splat<L>(A(p)), q_lanes = splat<L>(A(q));
      const L first = load<L>(a + begin + i), second = load<L>(b + begin + i);
      store<L>(out + begin + i, fused<L>(p_lanes, first, q_lanes * second));  // (weighted_sum.1)
    });
  });
}

template <class Device, class T>
void weighted_sum_backward(Device& device, T* d_a, T* d_b, double p, double q, const T* d_out, Index count) {
  using A = Accum<T>;
  parallel_pieces(device, count, elements_per_task, [=](Index begin, Index end) {
    for_lanes<T>(end - begin, [=]<class L>(Index i) {
      const L d = load<L>(d_out + begin + i);
      store<L>(d_a + begin + i, splat<L>(A(p)) * d);  // (weighted_sum.2)
      store<L>(d_b + begin + i, splat<L>(A(q)) * d);  // (weighted_sum.2)
    });
  });
}

ABH_INSTANTIATE(Cpu, weighted_sum_forward, weighted_sum_backward)

}  // namespace abh
