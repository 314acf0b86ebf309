#pragma once

#include "cases/case.hpp"
#include "extras/kernel_regression/kernel_regression.hpp"

namespace abh {

// out_c = kernel_regression(query_c, key_s, value_s, width).
struct KernelRegressionCase {
  Index C, S;
  bool leave_one_out = false;
  bool learned = true;     // true: the width is an input; false: it is
  double fixed_width = 1;  // this value

  std::vector<TensorSpec> inputs() const {
    std::vector<TensorSpec> specs = {activation("query_c", {C}), activation("key_s", {S}), activation("value_s", {S})};
    if (learned) specs.push_back(weight("width", {}, 0.3, 1.5));
    return specs;
  }
  std::vector<TensorSpec> outputs() const { return {activation("out_c", {C})}; }
  std::vector<TensorSpec> saved() const { return {statistic("near_c", {C}), statistic("share_c", {C})}; }

  template <class Device, class Arrays, class T = typename Arrays::Number>
  void forward(Device& device, Arrays& a) const {
    kernel_regression_forward<Device, T>(
        device,
        {.out_c = a.out[0].data(), .near_c = a.saved[0].data(), .share_c = a.saved[1].data(), .in = arguments<T>(a)});
  }
  template <class Device, class Arrays, class T = typename Arrays::Number>
  void backward(Device& device, Arrays& a) const {
    KernelRegressionBackward<T> arguments_of{.d_query_c = a.d_in[0].data(),
                                             .d_key_s = a.d_in[1].data(),
                                             .d_value_s = a.d_in[2].data(),
                                             .d_out_c = a.d_out[0].data(),
                                             .out_c = a.out[0].data(),
                                             .near_c = a.saved[0].data(),
                                             .share_c = a.saved[1].data(),
                                             .in = arguments<T>(a)};
    if (learned) arguments_of.d_width = a.d_in[3].data();
    kernel_regression_backward<Device, T>(device, arguments_of);
  }

 private:
  template <class T, class Arrays>
  KernelRegressionInputs<T> arguments(Arrays& a) const {
    KernelRegressionInputs<T> in{.query_c = a.in[0].data(),
                                 .key_s = a.in[1].data(),
                                 .value_s = a.in[2].data(),
                                 .fixed_width = fixed_width,
                                 .leave_one_out = leave_one_out,
                                 .C = C,
                                 .S = S};
    if (learned) in.width = a.in[3].data();
    return in;
  }
};

}  // namespace abh
