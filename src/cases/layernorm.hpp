#pragma once

#include "cases/case.hpp"
#include "layers/dropout.hpp"
#include "layers/layernorm.hpp"

namespace abh {

// out_bcd = layernorm(in_bcd) {+ in_bcd | residual}.
struct LayernormCase {
  Index BC, D;
  bool residual = false;

  std::vector<TensorSpec> inputs() const {
    return {activation("in_bcd", {BC, D}), weight("weight_d", {D}), weight("bias_d", {D})};
  }
  std::vector<TensorSpec> outputs() const { return {activation("out_bcd", {BC, D})}; }
  std::vector<TensorSpec> saved() const { return {statistic("mean_bc", {BC}), statistic("rstd_bc", {BC})}; }

  template <class Device, class Arrays, class T = typename Arrays::Number>
  void forward(Device& device, Arrays& a) const {
    layernorm_forward<Device, T>(device, a.out[0].data(), a.saved[0].data(), a.saved[1].data(), a.in[0].data(),
                                 a.in[1].data(), a.in[2].data(), BC, D);
    if (residual) add<Device, T>(device, a.out[0].data(), a.out[0].data(), a.in[0].data(), BC * D);
  }
  template <class Device, class Arrays, class T = typename Arrays::Number>
  void backward(Device& device, Arrays& a) const {
    layernorm_backward<Device, T>(device, {.d_in_bcd = a.d_in[0].data(),
                                           .d_weight_d = a.d_in[1].data(),
                                           .d_bias_d = a.d_in[2].data(),
                                           .d_out_bcd = a.d_out[0].data(),
                                           .d_residual_bcd = residual ? a.d_out[0].data() : nullptr,
                                           .in_bcd = a.in[0].data(),
                                           .mean_bc = a.saved[0].data(),
                                           .rstd_bc = a.saved[1].data(),
                                           .weight_d = a.in[1].data(),
                                           .BC = BC,
                                           .D = D});
  }
};

}  // namespace abh
