#pragma once

#include "base/types.hpp"
#include "layers/dropout.hpp"

namespace abh {

// Gate: multiplies the pooled rows, after dropout, by another branch of the block, element by element. Derivation:
// docs/layers/gate.md.
//
//   out_bcd      = dropout(pooled_bcd) gate_bcd {+ residual_bcd | given}                      (gate.1)
//   d_pooled_bcd = dropout_backward(d_out_bcd gate_bcd)                                       (gate.2)
//   d_gate_bcd   = d_out_bcd dropout(pooled_bcd)                                              (gate.3)

// Inputs of both passes. dropout.hpp defines the dropout mask.
template <class T>
struct GateInputs {
  const T* pooled_bcd;
  const T* gate_bcd;
  Index gate_stride = 0;  // 0: D
  Dropout dropout = {};   // element index: row-major index in pooled_bcd
  Index BC, D;
};

// residual_bcd null: no residual. out may be residual_bcd or pooled_bcd. Reads and writes each array once.
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
