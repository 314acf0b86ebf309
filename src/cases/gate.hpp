#pragma once

#include "cases/case.hpp"
#include "layers/gate.hpp"

namespace abh {

// out_bcd = dropout(pooled_bcd) gate_bcd {+ residual_bcd | residual}.
struct GateCase {
  Index BC, D;
  bool residual = false;
  Dropout dropout = {};
  Index gap = 0, d_gap = gap;  // between rows of the gate, and of its gradient

  std::vector<TensorSpec> inputs() const {
    return {activation("residual_bcd", {residual ? BC : 0, D}), activation("pooled_bcd", {BC, D}),
            spread(activation("gate_bcd", {BC, D}), gap, d_gap)};
  }
  std::vector<TensorSpec> outputs() const { return {activation("out_bcd", {BC, D})}; }

  template <class Device, class Arrays, class T = typename Arrays::Number>
  void forward(Device& device, Arrays& a) const {
    gate_forward<Device, T>(
        device,
        {.out_bcd = a.out[0].data(), .residual_bcd = residual ? a.in[0].data() : nullptr, .in = inputs_of<T>(a)});
  }
  template <class Device, class Arrays, class T = typename Arrays::Number>
  void backward(Device& device, Arrays& a) const {
    const T* d_out_bcd = a.d_out[0].data();
    if (residual) device.copy(static_cast<T*>(a.d_in[0].data()), d_out_bcd, BC * D);
    gate_backward<Device, T>(device, {.d_pooled_bcd = a.d_in[1].data(),
                                      .d_gate_bcd = a.d_in[2].data(),
                                      .d_gate_stride = stride_with(D, d_gap),
                                      .d_out_bcd = d_out_bcd,
                                      .in = inputs_of<T>(a)});
  }

 private:
  template <class T, class Arrays>
  GateInputs<T> inputs_of(Arrays& a) const {
    return {.pooled_bcd = a.in[1].data(),
            .gate_bcd = a.in[2].data(),
            .gate_stride = stride_with(D, gap),
            .dropout = dropout,
            .BC = BC,
            .D = D};
  }
};

}  // namespace abh
