#pragma once

#include "layers/dropout.hpp"
#include "layers/gelu.hpp"

namespace abh {

// Backward of an element-wise layer, fused with the sum of its input gradient over rows, which is the gradient of the
// preceding bias. Only for devices with joins_layers. Other devices compute these sums as a column of the weight
// gradient product (linear.hpp). The results are bitwise equal to those of two layers.
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
