#pragma once

#include "base/types.hpp"

namespace abh {

// Mean of the unmasked positions of a sequence, (B, D): the input of a classifier. Derivation:
// extras/classifiers/masked_mean.md.
//
//   share_b  = 1 / (sum_c mask_bc), 0 where no position is left                                  (masked_mean.1)
//   mean_bd  = share_b sum_c mask_bc x_bcd                                                       (masked_mean.2)
//   d_x_bcd  = share_b mask_bc d_mean_bd                                                         (masked_mean.3)

// mask_bc: 1 for positions that count, else 0; null: all count. Saved for backward: share_b. 1 flop per element of x,
// which is read once; backward writes d_x once. B, C >= 0, D >= 1.
template <class Device, class T>
void masked_mean_forward(Device&, T* mean_bd, Accum<T>* share_b, const T* x_bcd, const Token* mask_bc, Index B, Index C,
                         Index D);

// d_x_bcd is overwritten.
template <class Device, class T>
void masked_mean_backward(Device&, T* d_x_bcd, const T* d_mean_bd, const Accum<T>* share_b, const Token* mask_bc,
                          Index B, Index C, Index D);

}  // namespace abh
