#pragma once

#include "layers/gate.hpp"
#include "layers/layernorm.hpp"

namespace abh {

// A gate (gate.hpp) and the layernorm (layernorm.hpp) of what it puts out, and on the way back the norm and then the
// gate. For devices that join layers alone, which do both in one sweep over the rows. The bits are those of the two
// layers by themselves.

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
void gate_layernorm_forward(Device&, const GateLayernormForward<T>&);

// norm.d_in_bcd = layernorm_backward; then gate_backward of that, which is gate.d_out_bcd.
template <class T>
struct GateLayernormBackward {
  LayernormBackward<T> norm;
  GateBackward<T> gate;
};
template <class Device, class T>
void gate_layernorm_backward(Device&, const GateLayernormBackward<T>&);

}  // namespace abh
