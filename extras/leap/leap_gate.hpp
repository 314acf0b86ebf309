#pragma once

#include "base/types.hpp"

namespace abh {

// The gate of leap: a query asks what was pooled, an average of keys, whether the average of values beside it may pass.
// Before that epsilon joins both averages, as the weight of a position whose key and value are 0: where all weights are
// small, so is what passes. It joins here and not in the state of pooling, where it would decay and windows would count
// it twice. Derivation: extras/leap/leap_gate.md.
//
// pooled_bcq is a row of averaged keys, pooled_key_bcnk, and behind them averaged values, pooled_value_bcnk; max_bnc
// and sum_bnc say how much weight is behind them: sum e^max.
//
//   most_bnc   = max(max_bnc, log epsilon),
//   total_bnc  = sum_bnc e^(max_bnc - most_bnc) + e^(log epsilon - most_bnc)                  (leap_gate.1)
//   share_bnc  = sum_bnc e^(max_bnc - most_bnc) / total_bnc                                   (leap_gate.2)
//   score_bnc  = scale share_bnc sum_k query_bcnk pooled_key_bcnk                             (leap_gate.3)
//   gate_bnc   = 1 / (1 + e^-score_bnc)                                                       (leap_gate.4)
//   out_bcnk   = gate_bnc share_bnc pooled_value_bcnk                                         (leap_gate.5)
//
// Backward. lse = max + log sum has a gradient of its own, through the share; all but the share is epsilon's:
//
//   d_score_bnc        = gate_bnc (1 - gate_bnc) share_bnc sum_k d_out_bcnk pooled_value_bcnk   (leap_gate.6)
//   d_query_bcnk       = scale d_score_bnc share_bnc pooled_key_bcnk                          (leap_gate.7)
//   d_pooled_key_bcnk  = scale d_score_bnc share_bnc query_bcnk                               (leap_gate.8)
//   d_pooled_value_bcnk = gate_bnc share_bnc d_out_bcnk                                       (leap_gate.9)
//   rest_bnc           = e^(log epsilon - most_bnc) / total_bnc                               (leap_gate.10)
//   d_lse_bnc          = rest_bnc sum_k (d_pooled_key_bcnk pooled_key_bcnk
//                                        + d_pooled_value_bcnk pooled_value_bcnk)             (leap_gate.11)
inline constexpr double leap_epsilon = 1e-5, log_leap_epsilon = -11.512925464970229;

// Rows of queries are N heads of K channels side by side, h = n K + k; a stride is the distance between two consecutive
// rows (0: N K). Rows of pooled_bcq, 2 N K wide, touch. Where nothing was seen max is -infinity, sum and the row are 0,
// and so is what comes out.
template <class T>
struct LeapGateInputs {
  const T* query_bch;
  Index query_stride = 0;
  const T* pooled_bcq;
  const Accum<T>* max_bnc;
  const Accum<T>* sum_bnc;
  double scale = 1;
  Index B, C, N, K;
};

// About 4 flops an element of the queries; every row is read or written once.
template <class T>
struct LeapGateForward {
  T* out_bch;  // rows touch
  LeapGateInputs<T> in;
};
template <class Device, class T>
void leap_gate_forward(Device&, const LeapGateForward<T>&);

// About 10 flops an element; reads d_out, queries and pooled, writes d_query and d_pooled. All gradients are
// overwritten.
template <class T>
struct LeapGateBackward {
  T* d_query_bch;
  Index d_query_stride = 0;
  T* d_pooled_bcq;
  Accum<T>* d_lse_bnc;
  const T* d_out_bch;  // rows touch
  LeapGateInputs<T> in;
};
template <class Device, class T>
void leap_gate_backward(Device&, const LeapGateBackward<T>&);

}  // namespace abh
