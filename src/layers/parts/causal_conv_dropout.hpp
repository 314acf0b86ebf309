#pragma once

#include "layers/causal_conv.hpp"
#include "layers/dropout.hpp"

namespace abh {

// Fused convolution (causal_conv.hpp), dropout of its output and sum with a residual; backward: dropout, then both
// gradients of the convolution. Only for devices with joins_layers: one kernel per pass for depthwise convolutions with
// four taps. The results are bitwise equal to those of the layers apart.

// out_bcd = residual_bcd + dropout(causal_conv(in_bcd)), three different arrays; residual_bcd null: no residual.
template <class T>
struct CausalConvDropoutForward {
  T* out_bcd;
  const T* in_bcd;
  const T* residual_bcd;
  const T* weight_dgj;
  Dropout dropout;
  CausalConvShape shape;
};
template <class Device, class T>
void causal_conv_dropout_forward(Device&, const CausalConvDropoutForward<T>&);

// d_in_bcd: overwritten; a separate array. d_weight_dgj: added to.
template <class T>
struct CausalConvDropoutBackward {
  T* d_in_bcd;
  Accum<T>* d_weight_dgj;
  const T* d_out_bcd;
  const T* in_bcd;
  const T* weight_dgj;
  Dropout dropout;
  CausalConvShape shape;
};
template <class Device, class T>
void causal_conv_dropout_backward(Device&, const CausalConvDropoutBackward<T>&);

}  // namespace abh
