#pragma once

#include "cases/case.hpp"
#include "layers/causal_conv.hpp"

namespace abh {

// out_bcd = causal_conv(in_bcd).
struct CausalConvCase {
  static constexpr bool multiplies_matrices = true;  // by `gemm` on a GPU

  CausalConvShape shape;

  Index taps() const { return shape.D * (shape.D / shape.groups) * shape.kernel; }
  std::vector<TensorSpec> inputs() const {
    const auto& [B, C, D, groups, J] = shape;
    return {activation("in_bcd", {B, C, D}), weight("weight_dgj", {D, D / groups, J})};
  }
  std::vector<TensorSpec> outputs() const { return {activation("out_bcd", {shape.B, shape.C, shape.D})}; }

  template <class Device, class Arrays, class T = typename Arrays::Number>
  void forward(Device& device, Arrays& a) const {
    causal_conv_forward<Device, T>(device, a.out[0].data(), a.in[0].data(), a.in[1].data(), shape);
  }
  template <class Device, class Arrays, class T = typename Arrays::Number>
  void backward(Device& device, Arrays& a) const {
    causal_conv_backward<Device, T>(device, a.d_in[0].data(), a.d_in[1].data(), a.d_out[0].data(), a.in[0].data(),
                                    a.in[1].data(), shape);
  }
};

}  // namespace abh
