#include "layers/layernorm.hpp"

#include "plain/view.hpp"

namespace abh {

template <class Device, class T>
void layernorm_forward(Device&, T* out_bcd, Accum<T>* mean_bc, Accum<T>* rstd_bc, const T* in_bcd, const T* weight_d,
                       const T* bias_d, Index BC, Index D) {
  using A = Accum<T>;
  const auto out = array(out_bcd, D);
  const auto in = array(in_bcd, D);
  for (Index bc = 0; bc < BC; ++bc) {
    A sum = A(0), squares = A(0);
    for (Index d = 0; d < D; ++d) sum += in(bc, d);
    const A mean = sum / A(D);  // (layernorm.1)
    // A second pass over the row: mean(x^2) - mean^2 loses precision if the mean is large.
    for (Index d = 0; d < D; ++d) squares += (in(bc, d) - mean) * (in(bc, d) - mean);
    const A rstd = A(1) / sqrt(squares / A(D) + A(layernorm_epsilon));                                 // (layernorm.2)
    for (Index d = 0; d < D; ++d) out(bc, d) = weight_d[d] * ((in(bc, d) - mean) * rstd) + bias_d[d];  // (layernorm.3)
    // Saves two numbers per row; backward computes normed from them and `in`.
    mean_bc[bc] = mean;
    rstd_bc[bc] = rstd;
  }
}

template <class Device, class T>
void layernorm_backward(Device&, const LayernormBackward<T>& a) {
  using A = Accum<T>;
  const Index D = a.D;
  const auto d_in = array(a.d_in_bcd, D);
  const auto in = array(a.in_bcd, D), d_out = array(a.d_out_bcd, D), d_residual = array(a.d_residual_bcd, D);
  for (Index bc = 0; bc < a.BC; ++bc) {
    const A mean = a.mean_bc[bc], rstd = a.rstd_bc[bc];
    A mean_u = A(0), mean_u_normed = A(0);
    // Both means are needed before the first d_in. A second loop recomputes normed and u, so that no row is stored.
    for (Index d = 0; d < D; ++d) {
      const A normed = (in(bc, d) - mean) * rstd, u = a.weight_d[d] * d_out(bc, d);
      mean_u += u / A(D);
      mean_u_normed += u * normed / A(D);
      // Accumulated over rows, because every row uses the same D weights.
      a.d_weight_d[d] += d_out(bc, d) * normed;  // (layernorm.5)
      a.d_bias_d[d] += d_out(bc, d);             // (layernorm.6)
    }
    for (Index d = 0; d < D; ++d) {
      const A normed = (in(bc, d) - mean) * rstd, u = a.weight_d[d] * d_out(bc, d);
      // d_in may be the array d_out or d_residual: each element is read here for the last time.
      const A around = a.d_residual_bcd ? d_residual(bc, d) : A(0);
      d_in(bc, d) = rstd * (u - mean_u - normed * mean_u_normed) + around;  // (layernorm.4)
    }
  }
}

ABH_INSTANTIATE(PlainDevice, layernorm_forward, layernorm_backward)

}  // namespace abh
