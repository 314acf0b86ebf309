#pragma once

#include "cases/case.hpp"
#include "extras/classifiers/masked_mean.hpp"

namespace abh {

// mean_bd = masked_mean(x_bcd). The device reads mask_bc.
struct MaskedMeanCase {
  Index B, C, D;
  const Token* mask_bc = nullptr;

  std::vector<TensorSpec> inputs() const { return {activation("x_bcd", {B, C, D})}; }
  std::vector<TensorSpec> outputs() const { return {activation("mean_bd", {B, D})}; }
  std::vector<TensorSpec> saved() const { return {statistic("share_b", {B})}; }

  template <class Device, class Arrays, class T = typename Arrays::Number>
  void forward(Device& device, Arrays& a) const {
    masked_mean_forward<Device, T>(device, a.out[0].data(), a.saved[0].data(), a.in[0].data(), mask_bc, B, C, D);
  }
  template <class Device, class Arrays, class T = typename Arrays::Number>
  void backward(Device& device, Arrays& a) const {
    masked_mean_backward<Device, T>(device, a.d_in[0].data(), a.d_out[0].data(), a.saved[0].data(), mask_bc, B, C, D);
  }
};

}  // namespace abh
