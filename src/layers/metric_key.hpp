#pragma once

#include "base/types.hpp"

namespace abh {

// Metric attention scores a pair of positions with a bilinear form of one projection p and a matrix M, the metric:
// score = p_c^T M p_c' / sqrt(K). This is attention with query = value = p and key = M p. This layer computes the key
// and its part of the backward pass. Derivation: docs/layers/metric_key.md, after the Metaformer README, whose errors
// the chapter lists. project: the rows of p. metric_nkk': the matrix M_n of a head.
//
// packed: M is symmetric; metric_nl is the upper triangle k <= k', row by row, N x K(K+1)/2 (metric attention).
// full: M is unconstrained; metric_nkk is N x K x K (quadratic attention). (metric_key.1) does not apply.
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
// A full metric has the gradient d_metric_nkk' += gradient_nkk'.
//
// Decoding, with the rows of p as the only cache:
//
//   query_nk' = sum_k project_nk metric_nkk'                                   (metric_key.6)
enum class MetricForm { packed, full };

inline Index metric_count(MetricForm form, Index N, Index K) {
  return N * (form == MetricForm::packed ? K * (K + 1) / 2 : K * K);
}

// Contiguous rows of N heads of K channels. BC >= 0, N, K >= 1.
template <class T>
struct MetricKeyInputs {
  const T* project_bch;
  const T* metric;
  MetricForm form = MetricForm::packed;
  Index BC, N, K;
};

// key_bch and project_bch are different arrays. 2 BC N K^2 flops. Reads project_bch and writes key_bch once. Saves
// nothing.
template <class Device, class T>
void metric_key_forward(Device&, T* key_bch, const MetricKeyInputs<T>&);

// 4 BC N K^2 flops. Reads d_key_bch and project_bch; reads and writes d_project_bch.
template <class T>
struct MetricKeyBackward {
  T* d_project_bch;    // added to; already contains the gradients of query and value
  Accum<T>* d_metric;  // added to
  const T* d_key_bch;
  MetricKeyInputs<T> in;
};
template <class Device, class T>
void metric_key_backward(Device&, const MetricKeyBackward<T>&);

// Query of one new position, BC = 1. Its dot product with a cached row p_c' is p_c^T M p_c', so attention_step takes
// the cache of p as keys and as values. query_h: N K numbers; not project_bch. 2 N K^2 flops.
template <class Device, class T>
void metric_query_step(Device&, T* query_h, const MetricKeyInputs<T>&);

}  // namespace abh
