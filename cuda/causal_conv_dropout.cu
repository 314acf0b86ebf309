#include "cuda/depthwise_rows.hpp"
#include "layers/parts/causal_conv_dropout.hpp"

namespace abh {

template <class Device, class T>
void causal_conv_dropout_forward(Device& device, const CausalConvDropoutForward<T>& a) {
  const CausalConvShape& s = a.shape;
  if (begins_block(a.dropout) && is_depthwise(s, a.out_bcd, a.in_bcd) &&
      widest_fits<float>(0, a.residual_bcd, a.weight_dgj)) {
    const DroppedOutput<T> output{a.out_bcd, a.residual_bcd, mask_of(a.dropout)};
    return depthwise(device, output, a.in_bcd, a.weight_dgj, Look::back, s);
  }
  causal_conv_forward<Device, T>(device, a.out_bcd, a.in_bcd, a.weight_dgj, s);
  dropout_forward<Device, T>(device, a.out_bcd, a.out_bcd, a.residual_bcd, a.dropout, s.B * s.C * s.D);
}

template <class Device, class T>
void causal_conv_dropout_backward(Device& device, const CausalConvDropoutBackward<T>& a) {
  const CausalConvShape& s = a.shape;
  if (s.B * s.C == 0) return;
  if (begins_block(a.dropout) && is_depthwise(s, a.d_out_bcd, a.in_bcd) &&
      widest_fits<float>(0, a.d_in_bcd, a.weight_dgj)) {
    const DroppedGradient<T> gradient{mask_of(a.dropout)};
    return depthwise_backward(device, a.d_in_bcd, a.d_weight_dgj, a.d_out_bcd, a.in_bcd, a.weight_dgj, s, gradient);
  }
  typename Device::Scope scratch(device.workspace);
  T* dropped_bcd = scratch.template take<T>(s.B * s.C * s.D);
  dropout_backward<Device, T>(device, dropped_bcd, a.d_out_bcd, a.dropout, s.B * s.C * s.D);
  causal_conv_backward<Device, T>(device, a.d_in_bcd, a.d_weight_dgj, dropped_bcd, a.in_bcd, a.weight_dgj, s);
}

ABH_INSTANTIATE(Gpu, causal_conv_dropout_forward, causal_conv_dropout_backward)

}  // namespace abh
