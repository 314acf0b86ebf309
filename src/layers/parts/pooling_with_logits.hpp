#pragma once

#include "layers/pooling.hpp"
#include "layers/pooling_logits.hpp"

namespace abh {

// The logits that a learned vector a head makes of a payload (pooling_logits.hpp), and its pooling (pooling.hpp); on
// the way back the pooling and then the logits. For devices that join layers alone, which read the payload once for
// both. The bits are those of the two layers by themselves, but for d_pool_nk, whose sum is cut into other parts.

// pooling.in.logit_bnc = logit_bnc, which is written.
template <class T>
struct PoolingWithLogitsForward {
  Accum<T>* logit_bnc;
  const T* pool_nk;
  PoolingForward<T> pooling;
};
template <class Device, class T>
void pooling_with_logits_forward(Device&, const PoolingWithLogitsForward<T>&);

// Without a gradient of max + log sum.
template <class T>
struct PoolingWithLogitsBackward {
  Accum<T>* d_pool_nk;  // added to
  const T* pool_nk;
  PoolingBackward<T> pooling;
};
template <class Device, class T>
void pooling_with_logits_backward(Device&, const PoolingWithLogitsBackward<T>&);

}  // namespace abh
