#pragma once

#include "cases/case.hpp"
#include "layers/linear.hpp"

namespace abh {

// out_bco = scale (in_bci weight_oi {+ bias_o | bias}). Rows of both may be slices of wider rows. `accumulate` tests
// the accumulated input gradient: the case is then the sum of two equal maps.
struct LinearCase {
  static constexpr bool multiplies_matrices = true;  // by `gemm` on a GPU

  Index BC, I, O;
  bool bias = false;
  double scale = 1;
  bool accumulate = false;
  Index in_gap = 0, out_gap = 0;

  std::vector<TensorSpec> inputs() const {
    std::vector<TensorSpec> specs = {spread(activation("in_bci", {BC, I}), in_gap, in_gap),
                                     weight("weight_oi", {O, I})};
    if (bias) specs.push_back(weight("bias_o", {O}));
    return specs;
  }
  std::vector<TensorSpec> outputs() const { return {spread(activation("out_bco", {BC, O}), out_gap, out_gap)}; }

  template <class Device, class Arrays, class T = typename Arrays::Number>
  void forward(Device& device, Arrays& a) const {
    linear_forward<Device, T>(device, {.out_bco = a.out[0].data(),
                                       .in_bci = a.in[0].data(),
                                       .weight_oi = a.in[1].data(),
                                       .bias_o = bias ? a.in[2].data() : nullptr,
                                       .shape = shape(),
                                       .scale = scale_of_all()});
  }

  template <class Device, class Arrays, class T = typename Arrays::Number>
  void backward(Device& device, Arrays& a) const {
    LinearBackwardInput<T> to_input{.d_in_bci = a.d_in[0].data(),
                                    .d_out_bco = a.d_out[0].data(),
                                    .weight_oi = a.in[1].data(),
                                    .shape = shape(),
                                    .scale = scale};
    linear_backward_input<Device, T>(device, to_input);
    to_input.accumulate = accumulate;
    if (accumulate) linear_backward_input<Device, T>(device, to_input);
    linear_backward_weight<Device, T>(device, {.d_weight_oi = a.d_in[1].data(),
                                               .d_bias_o = bias ? a.d_in[2].data() : nullptr,
                                               .d_out_bco = a.d_out[0].data(),
                                               .in_bci = a.in[0].data(),
                                               .shape = shape(),
                                               .scale = scale_of_all()});
  }

 private:
  LinearShape shape() const {
    return {.BC = BC, .I = I, .O = O, .in_stride = stride_with(I, in_gap), .out_stride = stride_with(O, out_gap)};
  }
  double scale_of_all() const { return accumulate ? 2 * scale : scale; }
};

}  // namespace abh
