#pragma once

#include "cases/case.hpp"
#include "layers/gelu.hpp"

namespace abh {

// out = gelu(in), element by element.
struct GeluCase {
  Index count;
  GeluForm form = GeluForm::erf;
  double scale = 1;  // of the input

  std::vector<TensorSpec> inputs() const { return {activation("in", {count}, scale)}; }
  std::vector<TensorSpec> outputs() const { return {activation("out", {count})}; }

  template <class Device, class Arrays, class T = typename Arrays::Number>
  void forward(Device& device, Arrays& a) const {
    gelu_forward<Device, T>(device, a.out[0].data(), a.in[0].data(), count, form);
  }
  template <class Device, class Arrays, class T = typename Arrays::Number>
  void backward(Device& device, Arrays& a) const {
    gelu_backward<Device, T>(device, a.d_in[0].data(), a.d_out[0].data(), a.in[0].data(), count, form);
  }
};

}  // namespace abh
