#pragma once

#include "base/types.hpp"

namespace abh {

// Linear map of each row. Derivation: docs/layers/linear.md.
//
//   out_bco = scale (sum_i in_bci weight_oi {+ bias_o | given})                    (linear.1)
//
// Backward:
//
//   d_in_bci = scale sum_o d_out_bco weight_oi {+ d_in_bci | accumulate}           (linear.2)
//   d_weight_oi += scale sum_bc d_out_bco in_bci                                   (linear.3)
//   d_bias_o += scale sum_bc d_out_bco                                             (linear.4)
//
// Rows may be slices of wider rows: a stride is the distance between the starts of consecutive rows, in elements; 0:
// contiguous rows. weight_oi: (O, I), contiguous rows, as in PyTorch. Weights that are consecutive in memory (query,
// key, value) can be one weight with a larger O. BC >= 0, I >= 1, O >= 1. No output overlaps an input. Each of the
// three products takes 2 BC I O flops and moves at least BC I + BC O + I O elements. Backward reads the input and the
// weight.
struct LinearShape {
  Index BC, I, O;
  Index in_stride = 0, out_stride = 0;  // strides of in_bci and d_in_bci, and of out_bco and d_out_bco
  // True: of a square result, the elements below the diagonal are not used and may have any value. The CPU then skips
  // their tiles.
  bool upper = false;
};

template <class T>
struct LinearForward {
  T* out_bco;  // overwritten
  const T* in_bci;
  const T* weight_oi;
  const T* bias_o = nullptr;
  LinearShape shape;
  double scale = 1;
};

template <class Device, class T>
void linear_forward(Device&, const LinearForward<T>&);

template <class T>
struct LinearBackwardInput {
  T* d_in_bci;  // overwritten, or added to if `accumulate` is true
  const T* d_out_bco;
  const T* weight_oi;
  LinearShape shape;
  double scale = 1;
  bool accumulate = false;
};

template <class Device, class T>
void linear_backward_input(Device&, const LinearBackwardInput<T>&);

template <class T>
struct LinearBackwardWeight {
  Accum<T>* d_weight_oi;         // added to
  Accum<T>* d_bias_o = nullptr;  // added to; null: no bias
  const T* d_out_bco;
  const T* in_bci;
  LinearShape shape;
  double scale = 1;
};

template <class Device, class T>
void linear_backward_weight(Device&, const LinearBackwardWeight<T>&);

}  // namespace abh
