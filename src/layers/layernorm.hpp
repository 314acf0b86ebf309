#pragma once

#include "base/types.hpp"

namespace abh {

// Layer normalisation: shifts and scales each row of D channels to mean 0 and variance 1, then applies a learned scale
// and offset. Ba, Kiros, Hinton, "Layer normalization", 2016. Derivation: docs/layers/layernorm.md.
//
//   mean_bc  = 1/D sum_d in_bcd                                                    (layernorm.1)
//   rstd_bc  = (1/D sum_d (in_bcd - mean_bc)^2 + epsilon)^(-1/2)                   (layernorm.2)
//   out_bcd  = weight_d (in_bcd - mean_bc) rstd_bc + bias_d                        (layernorm.3)
//
// Backward, with normed_bcd = (in_bcd - mean_bc) rstd_bc and its gradient u_bcd = weight_d d_out_bcd, and the means
// mean_u_bc = 1/D sum_d u_bcd and mean_u_normed_bc = 1/D sum_d u_bcd normed_bcd:
//
//   d_in_bcd = rstd_bc (u_bcd - mean_u_bc - normed_bcd mean_u_normed_bc) {+ d_residual_bcd | given}   (layernorm.4)
//   d_weight_d += sum_bc d_out_bcd normed_bcd                                      (layernorm.5)
//   d_bias_d   += sum_bc d_out_bcd                                                 (layernorm.6)
//
// The variance needs a second pass over the row: mean(x^2) - mean(x)^2 is inaccurate if the mean is large.
inline constexpr double layernorm_epsilon = 1e-5;

// in_bcd, out_bcd: (BC, D); the same array only if no backward pass follows. mean_bc, rstd_bc: (BC), saved for
// backward. BC >= 0 rows, D >= 1. About 8 flops per element. Reads and writes each row once.
template <class Device, class T>
void layernorm_forward(Device&, T* out_bcd, Accum<T>* mean_bc, Accum<T>* rstd_bc, const T* in_bcd, const T* weight_d,
                       const T* bias_d, Index BC, Index D);

template <class T>
struct LayernormBackward {
  T* d_in_bcd;           // overwritten; may be d_residual_bcd or d_out_bcd
  Accum<T>* d_weight_d;  // added to
  Accum<T>* d_bias_d;    // added to
  const T* d_out_bcd;
  const T* d_residual_bcd = nullptr;  // gradient of the residual stream, added to d_in_bcd; null: none
  const T* in_bcd;
  const Accum<T>* mean_bc;
  const Accum<T>* rstd_bc;
  const T* weight_d;
  Index BC, D;
};

// 16 flops per element, 17 with a residual. Reads in_bcd and d_out_bcd once from memory; a GPU twice if D > 1024.
template <class Device, class T>
void layernorm_backward(Device&, const LayernormBackward<T>&);

}  // namespace abh
