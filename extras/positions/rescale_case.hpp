#pragma once

#include "cases/case.hpp"
#include "extras/positions/rescale.hpp"

namespace abh {

// out_bch = rescale(in_bch), head by head.
struct RescaleCase {
  Index BC, N, K;
  double scale = 1, offset = 0;  // standard deviation and mean of the input
  Index gap = 0, d_gap = gap;    // between rows of in, and of its gradient
  Index out_gap = 0;

  Index H() const { return N * K; }
  std::vector<TensorSpec> inputs() const {
    return {spread(activation("in_bch", {BC, H()}, scale, offset), gap, d_gap)};
  }
  std::vector<TensorSpec> outputs() const { return {spread(activation("out_bch", {BC, H()}), out_gap, out_gap)}; }
  std::vector<TensorSpec> saved() const { return {statistic("deviation_bcn", {BC, N})}; }

  template <class Device, class Arrays, class T = typename Arrays::Number>
  void forward(Device& device, Arrays& a) const {
    rescale_forward<Device, T>(device, {.out_bch = a.out[0].data(),
                                        .deviation_bcn = a.saved[0].data(),
                                        .in_bch = a.in[0].data(),
                                        .out_stride = stride_with(H(), out_gap),
                                        .in_stride = stride_with(H(), gap),
                                        .BC = BC,
                                        .N = N,
                                        .K = K});
  }
  template <class Device, class Arrays, class T = typename Arrays::Number>
  void backward(Device& device, Arrays& a) const {
    rescale_backward<Device, T>(device, {.d_in_bch = a.d_in[0].data(),
                                         .d_out_bch = a.d_out[0].data(),
                                         .out_bch = a.out[0].data(),
                                         .d_in_stride = stride_with(H(), d_gap),
                                         .d_out_stride = stride_with(H(), out_gap),
                                         .out_stride = stride_with(H(), out_gap),
                                         .deviation_bcn = a.saved[0].data(),
                                         .BC = BC,
                                         .N = N,
                                         .K = K});
  }
};

}  // namespace abh
