#include "extras/reversible/weighted_sum.hpp"
#include "plain/view.hpp"

namespace abh {

template <class Device, class T>
void weighted_sum_forward(Device&, T* out, double p, const T* a, double q, const T* b, Index count) {
  using A = Accum<T>;
  for (Index i = 0; i < count; ++i) out[i] = A(p) * a[i] + A(q) * b[i];  // (weighted_sum.1)
}

template <class Device, class T>
void weighted_sum_backward(Device&, T* d_a, T* d_b, double p, double q, const T* d_out, Index count) {
  using A = Accum<T>;
  for (Index i = 0; i < count; ++i) {
    const A d = d_out[i];
    d_a[i] = A(p) * d;  // (weighted_sum.2)
    d_b[i] = A(q) * d;  // (weighted_sum.2)
  }
}

ABH_INSTANTIATE(PlainDevice, weighted_sum_forward, weighted_sum_backward)

}  // namespace abh
