#include "layers/gate.hpp"

#include "plain/view.hpp"

namespace abh {

template <class Device, class T>
void gate_forward(Device& device, const GateForward<T>& a) {
  using A = Accum<T>;
  const auto& in = a.in;
  const auto out = array(a.out_bcd, in.D);
  const auto residual = array(a.residual_bcd, in.D), gate = array(in.gate_bcd, stride_or(in.gate_stride, in.D));
  typename Device::Scope scratch(device.workspace);
  const auto dropped = array(scratch.template take<A>(in.BC * in.D), in.D);
  // Written to scratch memory, because out may be the residual, which is still needed.
  for (Index i = 0; i < in.BC * in.D; ++i) dropped.first[i] = in.pooled_bcd[i];
  dropout_forward<Device, A>(device, dropped.first, dropped.first, nullptr, in.dropout, in.BC * in.D);
  for (Index bc = 0; bc < in.BC; ++bc) {
    for (Index d = 0; d < in.D; ++d) {
      out(bc, d) = (a.residual_bcd ? residual(bc, d) : A(0)) + dropped(bc, d) * gate(bc, d);  // (gate.1)
    }
  }
}

template <class Device, class T>
void gate_backward(Device& device, const GateBackward<T>& a) {
  using A = Accum<T>;
  const auto& in = a.in;
  const Index count = in.BC * in.D;
  const auto d_gate = array(a.d_gate_bcd, stride_or(a.d_gate_stride, in.D));
  const auto d_out = array(a.d_out_bcd, in.D), gate = array(in.gate_bcd, stride_or(in.gate_stride, in.D));
  typename Device::Scope scratch(device.workspace);
  const auto dropped = array(scratch.template take<A>(count), in.D);
  const auto d_dropped = array(scratch.template take<A>(count), in.D);
  // Mask of the forward pass, drawn again from seed, step, site and element index.
  for (Index i = 0; i < count; ++i) dropped.first[i] = in.pooled_bcd[i];
  dropout_forward<Device, A>(device, dropped.first, dropped.first, nullptr, in.dropout, count);
  for (Index bc = 0; bc < in.BC; ++bc) {
    for (Index d = 0; d < in.D; ++d) {
      d_gate(bc, d) = d_out(bc, d) * dropped(bc, d);  // (gate.3)
      d_dropped(bc, d) = d_out(bc, d) * gate(bc, d);
    }
  }
  dropout_backward<Device, A>(device, d_dropped.first, d_dropped.first, in.dropout, count);  // (gate.2)
  for (Index i = 0; i < count; ++i) a.d_pooled_bcd[i] = d_dropped.first[i];
}

ABH_INSTANTIATE(PlainDevice, gate_forward, gate_backward)

}  // namespace abh
