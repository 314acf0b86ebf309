#pragma once

#include "base/types.hpp"

namespace abh {

// Metric attention scores a pair of positions by a bilinear form of one projection p, a matrix M between them:
// score = p_c^T M p_c' / sqrt(K). It is the core of attention with query = value = p and key = M p; this layer computes
// that key, and its part of the backward pass. The equations are those of docs/layers/metric_key.md, derived
// there; after the Metaformer README, whose errors the chapter lists. The rows of p are project, the matrix M_n of a
// head is metric_nkk'.
//
// packed: M is symmetric, metric_nl holds its upper triangle k <= k' row by row, N x K(K+1)/2 (metric attention).
// full: M is free, metric_nkk is N x K x K (quadratic attention), and there is no (metric_key.1).
//
//   metric_nkk' = metric_nk'k = metric_nl,  l = k K - k (k - 1)/2 + k' - k,  k <= k'   (metric_key.1)
//   key_bcnk = sum_k' metric_nkk' project_bcnk'                                (metric_key.2)
//
// Backward:
//
//   d_project_bcnk' += sum_k d_key_bcnk metric_nkk'                            (metric_key.3)
//   gradient_nkk' = sum_bc d_key_bcnk project_bcnk'                            (metric_key.4)
//   d_metric_nl += gradient_nkk' {+ gradient_nk'k | k < k'}                    (metric_key.5)
//
// where a full metric takes the gradient as it is, d_metric_nkk' += gradient_nkk'.
//
// One step of inference, where the rows of p are the only cache:
//
//   query_nk' = sum_k project_nk metric_nkk'                                   (metric_key.6)
enum class MetricForm { packed, full };

inline Index metric_count(MetricForm form, Index N, Index K) {
  return N * (form == MetricForm::packed ? K * (K + 1) / 2 : K * K);
}

// Rows of N heads of K channels touch. BC >= 0, N, K >= 1.
template <class T>
struct MetricKeyInputs {
  const T* project_bch;
  const T* metric;
  MetricForm form = MetricForm::packed;
  Index BC, N, K;
};

// key_bch and project_bch are not the same array. 2 BC N K^2 flops; reads project_bch and writes key_bch once. Nothing
// is saved.
template <class Device, class T>
void metric_key_forward(Device&, T* key_bch, const MetricKeyInputs<T>&);

// 4 BC N K^2 flops; reads d_key_bch and project_bch, reads and writes d_project_bch.
template <class T>
struct MetricKeyBackward {
  T* d_project_bch;    // added to: the gradients of query and value already stand there
  Accum<T>* d_metric;  // added to
  const T* d_key_bch;
  MetricKeyInputs<T> in;
};
template <class Device, class T>
void metric_key_backward(Device&, const MetricKeyBackward<T>&);

// The query of one new position, BC = 1: its dot product with a cached row p_c' is p_c^T M p_c', so that the core's
// step takes the cache of p for keys and for values. query_h: N K numbers, not project_bch. 2 N K^2 flops.
template <class Device, class T>
void metric_query_step(Device&, T* query_h, const MetricKeyInputs<T>&);

}  // namespace abh
