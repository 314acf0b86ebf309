#pragma once

#include "base/types.hpp"
#include "layers/dropout.hpp"

namespace abh {

// A gate multiplies, element by element, what was pooled with another branch of its block, after dropout. Derivation:
// docs/layers/gate.md.
//
//   out_bcd      = dropout(pooled_bcd) gate_bcd {+ residual_bcd | given}                      (gate.1)
//   d_pooled_bcd = dropout_backward(d_out_bcd gate_bcd)                                       (gate.2)
//   d_gate_bcd   = d_out_bcd dropout(pooled_bcd)                                              (gate.3)

// The inputs of both passes. An element is kept or dropped as dropout.hpp says.
template <class T>
struct GateInputs {
  const T* pooled_bcd;
  const T* gate_bcd;
  Index gate_stride = 0;  // 0: D
  Dropout dropout = {};   // element index: row-major position in pooled_bcd
  Index BC, D;
};

// The residual is left out when null. out may be residual_bcd or pooled_bcd itself. Reads each operand once, writes
// once.
template <class T>
struct GateForward {
  T* out_bcd;
  const T* residual_bcd = nullptr;
  GateInputs<T> in;
};
template <class Device, class T>
void gate_forward(Device&, const GateForward<T>&);

// The gradient of residual_bcd is d_out_bcd itself. d_pooled_bcd may be d_out_bcd.
template <class T>
struct GateBackward {
  T* d_pooled_bcd;  // overwritten
  T* d_gate_bcd;    // overwritten
  Index d_gate_stride = 0;
  const T* d_out_bcd;
  GateInputs<T> in;
};
template <class Device, class T>
void gate_backward(Device&, const GateBackward<T>&);

}  // namespace abh
