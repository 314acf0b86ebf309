#pragma once

#include "layers/gate.hpp"
#include "layers/layernorm.hpp"

namespace abh {

// A gate (gate.hpp) and the layernorm (layernorm.hpp) of what it puts out, and on the way back the norm and then the
// gate. A GPU does both in one sweep over the rows, other devices one after the other: the bits are the same.

template <class T>
struct NormOfGate {
  T* out_bcd;
  Accum<T>* mean_bc;
  Accum<T>* rstd_bc;
  const T* weight_d;
  const T* bias_d;
};

// gate.out_bcd = gate, which is read and written as there; norm.out_bcd = layernorm(gate.out_bcd).
template <class T>
struct GateLayernormForward {
  GateForward<T> gate;
  NormOfGate<T> norm;
};
template <class Device, class T>
void gate_layernorm_forward_together(Device&, const GateLayernormForward<T>&);
template <class Device, class T>
void gate_layernorm_forward(Device& device, const GateLayernormForward<T>& a) {
  if constexpr (Device::joins_layers) return gate_layernorm_forward_together<Device, T>(device, a);
  gate_forward<Device, T>(device, a.gate);
  layernorm_forward<Device, T>(device, a.norm.out_bcd, a.norm.mean_bc, a.norm.rstd_bc, a.gate.out_bcd, a.norm.weight_d,
                               a.norm.bias_d, a.gate.in.BC, a.gate.in.D);
}

// norm.d_in_bcd = layernorm_backward; then gate_backward of that, which is gate.d_out_bcd.
template <class T>
struct GateLayernormBackward {
  LayernormBackward<T> norm;
  GateBackward<T> gate;
};
template <class Device, class T>
void gate_layernorm_backward_together(Device&, const GateLayernormBackward<T>&);
template <class Device, class T>
void gate_layernorm_backward(Device& device, const GateLayernormBackward<T>& a) {
  if constexpr (Device::joins_layers) return gate_layernorm_backward_together<Device, T>(device, a);
  layernorm_backward<Device, T>(device, a.norm);
  gate_backward<Device, T>(device, a.gate);
}

}  // namespace abh
