#pragma once

#include "cases/case.hpp"
#include "extras/seq2seq/relu.hpp"

namespace abh {

// out = relu(in), element by element.
struct ReluCase {
  Index count;

  std::vector<TensorSpec> inputs() const { return {activation("in", {count})}; }
  std::vector<TensorSpec> outputs() const { return {activation("out", {count})}; }

  template <class Device, class Arrays, class T = typename Arrays::Number>
  void forward(Device& device, Arrays& a) const {
    relu_forward<Device, T>(device, a.out[0].data(), a.in[0].data(), count);
  }
  template <class Device, class Arrays, class T = typename Arrays::Number>
  void backward(Device& device, Arrays& a) const {
    relu_backward<Device, T>(device, a.d_in[0].data(), a.d_out[0].data(), a.in[0].data(), count);
  }
};

}  // namespace abh
