#pragma once

#include "base/types.hpp"
#include "layers/parts/attention_mask.hpp"

namespace abh {

// Scaled dot-product attention on projected rows: the output of a query is the mean of the values, weighted by the
// softmax of query times key. A query only attends to keys that the attention mask allows (attention_mask.hpp). Vaswani
// et al., "Attention is all you need", 2017. The online softmax, without a C x S matrix: Milakov, Gimelshein, "Online
// normalizer calculation for softmax", 2018. Derivation: docs/layers/attention.md.
//
// A row contains N heads of K channels, h = n K + k. Sums over s contain the keys that query c attends to:
//
//   score_bncs = 1/sqrt(K) sum_k query_bcnk key_bsnk                               (attention.1)
//   max_bnc = max_s score_bncs,  sum_bnc = sum_s exp(score_bncs - max_bnc)         (attention.2)
//   out_bcnk = 1/sum_bnc sum_s exp(score_bncs - max_bnc) value_bsnk                (attention.3)
//   lse_bnc = max_bnc + log sum_bnc                                                (attention.4)
//
// A query without keys: out 0, lse +infinity (every weight recomputed from lse is then 0), all gradients 0.
//
// Backward recomputes the weights from lse. Sums over c contain the queries that attend to key s:
//
//   weight_bncs  = exp(score_bncs - lse_bnc)                                       (attention.5)
//   delta_bnc    = sum_k d_out_bcnk out_bcnk                                       (attention.6)
//   d_score_bncs = weight_bncs (sum_k d_out_bcnk value_bsnk - delta_bnc)           (attention.7)
//   d_query_bcnk = 1/sqrt(K) sum_s d_score_bncs key_bsnk                           (attention.8)
//   d_key_bsnk   = 1/sqrt(K) sum_c d_score_bncs query_bcnk                         (attention.9)
//   d_value_bsnk = sum_c weight_bncs d_out_bcnk                                    (attention.10)
//
// If `scale` is set, it replaces 1/sqrt(K) in all equations. A distance bias is added to the score, in (attention.2)
// and (attention.5):
//
//   score_bncs += distance_bias_n|c + offset - s|                                  (attention.11)
//   d_distance_bias_np = sum_bc d_score_bncs,  s = c + offset - p                   (attention.12)
//
// A long sum over keys or queries is a sum of sums over tiles of 64. If there are many tiles, their sums are added in
// higher precision than T. A row within one tile is one sum.
//
// Masked keys must be finite, because they are multiplied by a weight of 0.

// A stride is the distance between consecutive rows; 0: N K. With strides, query, key and value may be slices of wider
// rows, or the same array. B, C, S >= 0; N, K >= 1. On a GPU, C, S, window and query_offset are below 2^30.
template <class T>
struct AttentionInputs {
  const T* query_bch;
  const T* key_bsh;
  const T* value_bsh;
  Index query_stride = 0, key_stride = 0, value_stride = 0;
  AttentionMask<Accum<T>> mask;
  double scale = 0;  // positive; 0: 1/sqrt(K)
  Index B, C, S, N, K;
};

// Flops: 4 B N K per pair (c, s) that the mask allows: C (C + 1) / 2 pairs for causal attention with C = S, else C S.
// Masked pairs are skipped in tiles of 64 x 64. Memory: O((C + S) K) per head.
template <class T>
struct AttentionForward {
  T* out_bch;         // contiguous rows
  Accum<T>* lse_bnc;  // saved for backward, as are query, key, value and out
  AttentionInputs<T> in;
};
template <class Device, class T>
void attention_forward(Device&, const AttentionForward<T>&);

// For inspection: attention weights (attention.5), recomputed from lse, query and key; 0 for masked pairs. Only in
// plain/. weight_bncs: (B, N, C, S).
template <class Device, class T>
void attention_weights(Device&, T* weight_bncs, const Accum<T>* lse_bnc, const AttentionInputs<T>&);

// Flops: 10 B N K per pair, because the scores are recomputed. Scratch: O(B C N K).
template <class T>
struct AttentionBackward {
  T* d_query_bch;  // d_query, d_key, d_value: overwritten; no overlap (slices of one array are allowed)
  T* d_key_bsh;
  T* d_value_bsh;
  Index d_query_stride = 0, d_key_stride = 0, d_value_stride = 0;
  const T* d_out_bch;  // contiguous rows, like out_bch
  const T* out_bch;
  const Accum<T>* lse_bnc;
  AttentionInputs<T> in;
};
template <class Device, class T>
void attention_backward(Device&, const AttentionBackward<T>&);

// Gradient of the distance bias of causal attention, (attention.12), for at most `most` distances: from first_n on,
// within the window of the head. Other elements do not change. Callable before or after attention_backward. Flops per
// distance: 4 B C N K.
template <class T>
struct AttentionBiasBackward {
  Accum<T>* d_distance_bias_np;
  const Index* first_n = nullptr;  // in device memory; null: 0
  Index most;
  const T* d_out_bch;
  const T* out_bch;
  const Accum<T>* lse_bnc;
  AttentionInputs<T> in;
};
template <class Device, class T>
void attention_bias_backward(Device&, const AttentionBiasBackward<T>&);

// Distances of head n in this call.
template <class T>
ABH_HOST_DEVICE constexpr Stretch distances_of(const AttentionBiasBackward<T>& a, Index n) {
  const Index first = a.first_n ? a.first_n[n] : 0, reach = a.in.mask.of_head(n).window;
  const Index end = reach > 0 && reach < a.in.mask.distances ? reach : a.in.mask.distances;
  return {first, end < first + a.most ? end : first + a.most};
}

// Decoding: one query at the last of `length` cached positions, with (attention.1) to (attention.3). The rows of the
// caches are contiguous. A cache may be a ring: the oldest position is in row `oldest`, and row 0 follows the last row.
// Only the window and the bias of the mask are used. key and value may be the same cache. out is 0 if length is 0.
// Flops: 4 N K per row in the window; reads each of these rows once.
template <class T>
struct AttentionStep {
  T* out_h;
  const T* query_h;
  const T* key_ch;
  const T* value_ch;
  AttentionMask<Accum<T>> mask = {};
  double scale = 0;
  Index length, oldest = 0, N, K;

  // Row of cached position c.
  ABH_HOST_DEVICE constexpr Index row(Index c) const { return oldest + c < length ? oldest + c : oldest + c - length; }
};
template <class Device, class T>
void attention_step(Device&, const AttentionStep<T>&);

// Cached rows from the oldest to the newest: the caches themselves, or a copy if they are rings.
template <class T>
struct CachedRows {
  const T *key_ch, *value_ch;
};
template <class Device, class Scope, class T>
CachedRows<T> in_order(Device& device, Scope& scratch, const AttentionStep<T>& a) {
  if (a.oldest == 0) return {a.key_ch, a.value_ch};
  const Index H = a.N * a.K, newer = a.oldest * H, older = a.length * H - newer;
  const auto ordered = [&](const T* ring_ch) {
    T* rows_ch = scratch.template take<T>(a.length * H);
    device.copy(rows_ch, ring_ch + newer, older);
    device.copy(rows_ch + older, ring_ch, newer);
    return rows_ch;
  };
  const T* value_ch = ordered(a.value_ch);
  return {a.key_ch == a.value_ch ? value_ch : ordered(a.key_ch), value_ch};
}

}  // namespace abh
