#pragma once

#include "base/types.hpp"

namespace abh {

// Logits of pooling: one number per position and head, the logarithm of the weight of this position. It is the scalar
// product of x with a learned vector per head. Wu, Wu, Qi, Huang, Xie, "Fastformer: additive attention can be all you
// need", 2021. Derivation: docs/layers/pooling_logits.md.
//
//   logit_bnc  = sum_k x_bcnk pool_nk / sqrt(K)                                               (pooling_logits.1)
//
// Backward:
//
//   d_x_bcnk  += d_logit_bnc pool_nk / sqrt(K)                                                (pooling_logits.2)
//   d_pool_nk += sum_bc d_logit_bnc x_bcnk / sqrt(K)                                          (pooling_logits.3)

// A row of x_bch contains N heads of K channels, h = n K + k. A stride is the distance between consecutive rows (0: no
// gap, N K). With a stride, x may be a slice of wider rows.
template <class T>
struct PoolingLogitsInputs {
  const T* x_bch;
  Index x_stride = 0;
  const T* pool_nk;
  Index B, C, N, K;
};

// 2 flops per element of x, which is read once.
template <class T>
struct PoolingLogitsForward {
  Accum<T>* logit_bnc;
  PoolingLogitsInputs<T> in;
};
template <class Device, class T>
void pooling_logits_forward(Device&, const PoolingLogitsForward<T>&);

// Adds to d_x_bch, which already contains the gradient from pooling, and to d_pool_nk. 4 flops per element. Reads x and
// d_x, writes d_x.
template <class T>
struct PoolingLogitsBackward {
  T* d_x_bch;  // added to
  Index d_x_stride = 0;
  Accum<T>* d_pool_nk;  // added to
  const Accum<T>* d_logit_bnc;
  PoolingLogitsInputs<T> in;
};
template <class Device, class T>
void pooling_logits_backward(Device&, const PoolingLogitsBackward<T>&);

}  // namespace abh
