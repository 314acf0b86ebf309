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

  std::vector<Slot> inputs() const {
    return {activation("residual_bcd", {residual ? BC : 0, D}), activation("pooled_bcd", {BC, D}),
            spread(activation("gate_bcd", {BC, D}), gap, d_gap)};
  }
  std::vector<Slot> outputs() const { return {activation("out_bcd", {BC, D})}; }

  template <class Device, class Arrays, class T = typename Arrays::Number>
  void forward(Device& device, Arrays& a) const {
    GateForward<T> pass{};
    pass.out_bcd = a.out[0].data();
    pass.residual_bcd = residual ? a.in[0].data() : nullptr;
    set_inputs(pass, a);
    gate_forward<Device, T>(device, pass);
  }
  template <class Device, class Arrays, class T = typename Arrays::Number>
  void backward(Device& device, Arrays& a) const {
    GateBackward<T> pass{};
    pass.d_pooled_bcd = a.d_in[1].data();
    pass.d_gate_bcd = a.d_in[2].data();
    pass.d_gate_stride = stride_with(D, d_gap);
    pass.d_out_bcd = a.d_out[0].data();
    set_inputs(pass, a);
    if (residual) device.copy(static_cast<T*>(a.d_in[0].data()), pass.d_out_bcd, BC * D);
    gate_backward<Device, T>(device, pass);
  }

 private:
  // What both passes read.
  template <class Pass, class Arrays>
  void set_inputs(Pass& pass, Arrays& a) const {
    pass.pooled_bcd = a.in[1].data();
    pass.gate_bcd = a.in[2].data();
    pass.gate_stride = stride_with(D, gap);
    pass.dropout = dropout;
    pass.BC = BC;
    pass.D = D;
  }
};

}  // namespace abh
