#pragma once

#include "layers/parts/with_row_sums.hpp"

namespace abh {

// Rectified linear unit, element by element: max(in, 0). Nair, Hinton, "Rectified linear units improve restricted
// Boltzmann machines", 2010. Derivation: extras/seq2seq/relu.md.
//
//   out_i  = max(in_i, 0)                      (relu.1)
//   d_in_i = {d_out_i | in_i > 0}, 0 else      (relu.2)
//
// NaN stays NaN, and its gradient is passed on. in, out: `count` >= 0 elements of any shape; out may be `in` only if no
// backward pass follows, because backward needs the input. One flop per element; reads 1 array, writes 1.
template <class Device, class T>
void relu_forward(Device&, T* out, const T* in, Index count);

// d_in is overwritten and may be d_out itself. One flop per element; reads 2 arrays, writes 1.
template <class Device, class T>
void relu_backward(Device&, T* d_in, const T* d_out, const T* in, Index count);
template <class Device, class T>
void relu_backward_with_row_sums(Device&, Accum<T>* d_bias_d, T* d_in_bcd, const T* d_out_bcd, const T* in_bcd,
                                 RowsOf rows);

}  // namespace abh
