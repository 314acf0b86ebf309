#pragma once

#include "base/types.hpp"

namespace abh {

// Gate of leap: the product of a query and the averaged key scales the averaged value. Before that, epsilon is added to
// both averages as the weight of a position whose key and value are 0: if all weights are small, the output is small.
// It is added here, not to the pooling state, where it would decay and a window would count it twice. Derivation:
// extras/leap/leap_gate.md.
//
// A row of pooled_bcq holds averaged keys, pooled_key_bcnk, followed by averaged values, pooled_value_bcnk. max_bnc and
// sum_bnc give the total weight, sum e^max.
//
//   most_bnc   = max(max_bnc, log epsilon),
//   total_bnc  = sum_bnc e^(max_bnc - most_bnc) + e^(log epsilon - most_bnc)                  (leap_gate.1)
//   share_bnc  = sum_bnc e^(max_bnc - most_bnc) / total_bnc                                   (leap_gate.2)
//   score_bnc  = scale share_bnc sum_k query_bcnk pooled_key_bcnk                             (leap_gate.3)
//   gate_bnc   = 1 / (1 + e^-score_bnc)                                                       (leap_gate.4)
//   out_bcnk   = gate_bnc share_bnc pooled_value_bcnk                                         (leap_gate.5)
//
// Backward pass. lse = max + log sum has its own gradient, through the share; 1 - share is the part of epsilon:
//
//   d_score_bnc        = gate_bnc (1 - gate_bnc) share_bnc sum_k d_out_bcnk pooled_value_bcnk   (leap_gate.6)
//   d_query_bcnk       = scale d_score_bnc share_bnc pooled_key_bcnk                          (leap_gate.7)
//   d_pooled_key_bcnk  = scale d_score_bnc share_bnc query_bcnk                               (leap_gate.8)
//   d_pooled_value_bcnk = gate_bnc share_bnc d_out_bcnk                                       (leap_gate.9)
//   rest_bnc           = e^(log epsilon - most_bnc) / total_bnc                               (leap_gate.10)
//   d_lse_bnc          = rest_bnc sum_k (d_pooled_key_bcnk pooled_key_bcnk
//                                        + d_pooled_value_bcnk pooled_value_bcnk)             (leap_gate.11)
inline constexpr double leap_epsilon = 1e-5, log_leap_epsilon = -11.512925464970229;

// Rows of queries are N heads of K adjacent channels, h = n K + k. A stride is the distance between two consecutive
// rows (0: N K). Rows of pooled_bcq, 2 N K wide, are contiguous. If all positions so far are masked, max is -infinity,
// and sum, the row and the output are 0.
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

// About 4 flops per element of the queries; every row is read or written once.
template <class T>
struct LeapGateForward {
  T* out_bch;  // contiguous rows
  LeapGateInputs<T> in;
};
template <class Device, class T>
void leap_gate_forward(Device&, const LeapGateForward<T>&);

// About 10 flops per element; reads d_out, queries and pooled, writes d_query and d_pooled. All gradients are
// overwritten.
template <class T>
struct LeapGateBackward {
  T* d_query_bch;
  Index d_query_stride = 0;
  T* d_pooled_bcq;
  Accum<T>* d_lse_bnc;
  const T* d_out_bch;  // contiguous rows
  LeapGateInputs<T> in;
};
template <class Device, class T>
void leap_gate_backward(Device&, const LeapGateBackward<T>&);

}  // namespace abh
