#pragma once

#include "cases/case.hpp"
#include "extras/positions/rotary.hpp"

namespace abh {

// out_bch = rotary(in_bch) with arbitrary numbers as cosines and sines.
struct RotaryCase {
  Index B, C, N, K;
  Index gap = 0, d_gap = gap;  // between rows of in, and of its gradient
  Index out_gap = 0;

  Index H() const { return N * K; }
  std::vector<TensorSpec> inputs() const {
    return {spread(activation("in_bch", {B, C, H()}), gap, d_gap), constant("turn_ck", {C, K})};
  }
  std::vector<TensorSpec> outputs() const { return {spread(activation("out_bch", {B, C, H()}), out_gap, out_gap)}; }

  template <class Device, class Arrays, class T = typename Arrays::Number>
  void forward(Device& device, Arrays& a) const {
    rotary_forward<Device, T>(device, {.out_bch = a.out[0].data(),
                                       .in_bch = a.in[0].data(),
                                       .out_stride = stride_with(H(), out_gap),
                                       .in_stride = stride_with(H(), gap),
                                       .turn_ck = a.in[1].data(),
                                       .B = B,
                                       .C = C,
                                       .N = N,
                                       .K = K});
  }
  template <class Device, class Arrays, class T = typename Arrays::Number>
  void backward(Device& device, Arrays& a) const {
    rotary_backward<Device, T>(device, {.d_in_bch = a.d_in[0].data(),
                                        .d_out_bch = a.d_out[0].data(),
                                        .d_in_stride = stride_with(H(), d_gap),
                                        .d_out_stride = stride_with(H(), out_gap),
                                        .turn_ck = a.in[1].data(),
                                        .B = B,
                                        .C = C,
                                        .N = N,
                                        .K = K});
  }
};

}  // namespace abh
