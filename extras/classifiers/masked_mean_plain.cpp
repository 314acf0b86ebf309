#include "extras/classifiers/masked_mean.hpp"
#include "plain/view.hpp"

namespace abh {

template <class Device, class T>
void masked_mean_forward(Device&, T* mean_bd, Accum<T>* share_b, const T* x_bcd, const Token* mask_bc, Index B, Index C,
                         Index D) {
  using A = Accum<T>;
  const auto mean = array(mean_bd, D);
  const auto x = array(x_bcd, C, D);
  for (Index b = 0; b < B; ++b) {
    double count = 0;
    for (Index c = 0; c < C; ++c) count += !mask_bc || mask_bc[b * C + c] ? 1 : 0;
    share_b[b] = count > 0 ? A(1 / count) : A(0);  // (masked_mean.1)
    for (Index d = 0; d < D; ++d) {
      A sum = A(0);
      for (Index c = 0; c < C; ++c) {
        if (!mask_bc || mask_bc[b * C + c]) sum += x(b, c, d);
      }
      mean(b, d) = share_b[b] * sum;  // (masked_mean.2)
    }
  }
}

template <class Device, class T>
void masked_mean_backward(Device&, T* d_x_bcd, const T* d_mean_bd, const Accum<T>* share_b, const Token* mask_bc,
                          Index B, Index C, Index D) {
  using A = Accum<T>;
  const auto d_x = array(d_x_bcd, C, D);
  const auto d_mean = array(d_mean_bd, D);
  for (Index b = 0; b < B; ++b) {
    for (Index c = 0; c < C; ++c) {
      const A share = !mask_bc || mask_bc[b * C + c] ? share_b[b] : A(0);
      for (Index d = 0; d < D; ++d) d_x(b, c, d) = share * d_mean(b, d);  // (masked_mean.3)
    }
  }
}

ABH_INSTANTIATE(PlainDevice, masked_mean_forward, masked_mean_backward)

}  // namespace abh
