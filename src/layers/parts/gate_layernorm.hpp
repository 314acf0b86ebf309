#pragma once

#include "layers/gate.hpp"
#include "layers/layernorm.hpp"

namespace abh {

// Fused gate (gate.hpp) and layernorm (layernorm.hpp) of its output; backward: layernorm, then gate. Only for devices
// with joins_layers: one kernel per pass. The results are bitwise equal to those of two layers.

template <class T>
struct NormOfGate {
  T* out_bcd;
  Accum<T>* mean_bc;
  Accum<T>* rstd_bc;
  const T* weight_d;
  const T* bias_d;
};

// gate.out_bcd = gate_forward; norm.out_bcd = layernorm(gate.out_bcd).
template <class T>
struct GateLayernormForward {
  GateForward<T> gate;
  NormOfGate<T> norm;
};
template <class Device, class T>
void gate_layernorm_forward(Device&, const GateLayernormForward<T>&);

// norm.d_in_bcd = layernorm_backward, then gate_backward with gate.d_out_bcd = norm.d_in_bcd.
template <class T>
struct GateLayernormBackward {
  LayernormBackward<T> norm;
  GateBackward<T> gate;
};
template <class Device, class T>
void gate_layernorm_backward(Device&, const GateLayernormBackward<T>&);

}  // namespace abh
