#include "layers/linear.hpp"

#include "plain/view.hpp"

namespace abh {

template <class Device, class T>
void linear_forward(Device&, const LinearForward<T>& a) {
  using A = Accum<T>;
  const auto out = array(a.out_bco, stride_or(a.shape.out_stride, a.shape.O));
  const auto in = array(a.in_bci, stride_or(a.shape.in_stride, a.shape.I)), weight = array(a.weight_oi, a.shape.I);
  for (Index bc = 0; bc < a.shape.BC; ++bc) {
    for (Index o = 0; o < a.shape.O; ++o) {
      A sum = A(0);
      for (Index i = 0; i < a.shape.I; ++i) sum += in(bc, i) * weight(o, i);  // row of in times row of weight
      out(bc, o) = A(a.scale) * (sum + (a.bias_o ? a.bias_o[o] : A(0)));      // (linear.1)
    }
  }
}

template <class Device, class T>
void linear_backward_input(Device&, const LinearBackwardInput<T>& a) {
  using A = Accum<T>;
  const auto d_in = array(a.d_in_bci, stride_or(a.shape.in_stride, a.shape.I));
  const auto d_out = array(a.d_out_bco, stride_or(a.shape.out_stride, a.shape.O)),
             weight = array(a.weight_oi, a.shape.I);
  for (Index bc = 0; bc < a.shape.BC; ++bc) {
    for (Index i = 0; i < a.shape.I; ++i) {
      A sum = A(0);
      for (Index o = 0; o < a.shape.O; ++o) sum += d_out(bc, o) * weight(o, i);  // all outputs of this input
      d_in(bc, i) = A(a.scale) * sum + (a.accumulate ? d_in(bc, i) : A(0));      // (linear.2)
    }
  }
}

template <class Device, class T>
void linear_backward_weight(Device&, const LinearBackwardWeight<T>& a) {
  using A = Accum<T>;
  const auto d_weight = array(a.d_weight_oi, a.shape.I);
  const auto d_out = array(a.d_out_bco, stride_or(a.shape.out_stride, a.shape.O)),
             in = array(a.in_bci, stride_or(a.shape.in_stride, a.shape.I));
  for (Index o = 0; o < a.shape.O; ++o) {
    for (Index i = 0; i < a.shape.I; ++i) {
      A sum = A(0);
      for (Index bc = 0; bc < a.shape.BC; ++bc) sum += d_out(bc, o) * in(bc, i);  // all rows use this weight
      d_weight(o, i) += A(a.scale) * sum;                                         // (linear.3)
    }
    A sum = A(0);  // as for a weight whose input is 1
    for (Index bc = 0; bc < a.shape.BC; ++bc) sum += d_out(bc, o);
    if (a.d_bias_o) a.d_bias_o[o] += A(a.scale) * sum;  // (linear.4)
  }
}

ABH_INSTANTIATE(PlainDevice, linear_forward, linear_backward_input, linear_backward_weight)

}  // namespace abh
