#pragma once

#include "layers/dropout.hpp"
#include "layers/gelu.hpp"

namespace abh {

// Gradients of element-wise layers, with the sums over their rows: the gradient of a bias that was added to what they
// are the gradient of. For devices that join layers alone, which make both in one sweep; elsewhere the sums are a
// column of the product for the gradient of the weight (linear.hpp). The bits are those of the two layers by
// themselves.
//
//   d_bias_d += sum_bc d_in_bcd

// Rows of D elements.
struct RowsOf {
  Index BC, D;
};

template <class Device, class T>
void gelu_backward_with_row_sums(Device&, Accum<T>* d_bias_d, T* d_in_bcd, const T* d_out_bcd, const T* in_bcd,
                                 RowsOf rows, GeluForm form);
template <class Device, class T>
void dropout_backward_with_row_sums(Device&, Accum<T>* d_bias_d, T* d_in_bcd, const T* d_out_bcd, const Dropout&,
                                    RowsOf rows);

}  // namespace abh
