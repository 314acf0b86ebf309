#pragma once

#include "layers/gate.hpp"
#include "layers/pooling.hpp"
#include "layers/pooling_logits.hpp"

namespace abh {

// Fused pooling_logits (pooling_logits.hpp) and pooling (pooling.hpp); backward: pooling, then logits. Only for devices
// with joins_layers: one kernel reads x once for both. The results are bitwise equal to those of two layers, except
// d_pool_nk, which is summed in another order.

// pooling.in.logit_bnc is logit_bnc, which is overwritten.
template <class T>
struct PoolingWithLogitsForward {
  Accum<T>* logit_bnc;
  const T* pool_nk;
  PoolingForward<T> pooling;
};
template <class Device, class T>
void pooling_with_logits_forward(Device&, const PoolingWithLogitsForward<T>&);

// The same, and the gate (gate.hpp) of the averages: gate.in.pooled_bcd is pooling.out_bch, which is written, too.
// gate.out_bcd may be x_bch of the pooling if x_bch has contiguous rows.
template <class T>
struct GatedPoolingForward {
  PoolingWithLogitsForward<T> pooled;
  GateForward<T> gate;
};
template <class Device, class T>
void gated_pooling_forward(Device&, const GatedPoolingForward<T>&);

// pooling.d_lse_bnc is null.
template <class T>
struct PoolingWithLogitsBackward {
  Accum<T>* d_pool_nk;  // added to
  const T* pool_nk;
  PoolingBackward<T> pooling;
};
template <class Device, class T>
void pooling_with_logits_backward(Device&, const PoolingWithLogitsBackward<T>&);

}  // namespace abh
