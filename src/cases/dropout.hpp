#pragma once

#include "cases/case.hpp"
#include "layers/dropout.hpp"

namespace abh {

// out = dropout(in) {+ residual | given}.
struct DropoutCase {
  Index count;
  Dropout dropout;
  bool residual = false;

  std::vector<TensorSpec> inputs() const {
    std::vector<TensorSpec> specs = {activation("in", {count})};
    if (residual) specs.push_back(activation("residual", {count}));
    return specs;
  }
  std::vector<TensorSpec> outputs() const { return {activation("out", {count})}; }

  template <class Device, class Arrays, class T = typename Arrays::Number>
  void forward(Device& device, Arrays& a) const {
    dropout_forward<Device, T>(device, a.out[0].data(), a.in[0].data(), residual ? a.in[1].data() : nullptr, dropout,
                               count);
  }
  template <class Device, class Arrays, class T = typename Arrays::Number>
  void backward(Device& device, Arrays& a) const {
    const T* d_out = a.d_out[0].data();
    dropout_backward<Device, T>(device, a.d_in[0].data(), d_out, dropout, count);
    if (residual) device.copy(static_cast<T*>(a.d_in[1].data()), d_out, count);
  }
};

}  // namespace abh
