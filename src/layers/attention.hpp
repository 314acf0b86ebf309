#pragma once

#include "base/types.hpp"
#include "layers/parts/attention_mask.hpp"

namespace abh {

// The core of scaled dot-product attention on projected rows: every query mixes the values of the keys it sees,
// weighted by the softmax of query times key. Vaswani et al., "Attention is all you need", 2017; the running softmax
// that avoids a C x S matrix: Milakov, Gimelshein, "Online normalizer calculation for softmax", 2018. Derivation:
// docs/layers/attention.md.
//
// Rows are N heads of K channels side by side, h = n K + k. For query c, over the keys s that it sees
// (attention_mask.hpp):
//
//   score_bncs = 1/sqrt(K) sum_k query_bcnk key_bsnk                               (attention.1)
//   max_bnc = max_s score_bncs,  sum_bnc = sum_s exp(score_bncs - max_bnc)         (attention.2)
//   out_bcnk = 1/sum_bnc sum_s exp(score_bncs - max_bnc) value_bsnk                (attention.3)
//   lse_bnc = max_bnc + log sum_bnc                                                (attention.4)
//
// A query that sees no key: out 0, lse +infinity (so that every weight recomputed from it is 0), all gradients 0.
//
// Backward, the weights recomputed from lse; sums over c run over the queries that see s:
//
//   weight_bncs  = exp(score_bncs - lse_bnc)                                       (attention.5)
//   delta_bnc    = sum_k d_out_bcnk out_bcnk                                       (attention.6)
//   d_score_bncs = weight_bncs (sum_k d_out_bcnk value_bsnk - delta_bnc)           (attention.7)
//   d_query_bcnk = 1/sqrt(K) sum_s d_score_bncs key_bsnk                           (attention.8)
//   d_key_bsnk   = 1/sqrt(K) sum_c d_score_bncs query_bcnk                         (attention.9)
//   d_value_bsnk = sum_c weight_bncs d_out_bcnk                                    (attention.10)
//
// Two things may be otherwise. A scale that is given stands in the place of 1/sqrt(K), everywhere. And where the
// attention mask has a bias for every distance, it joins the score, in (attention.2) and (attention.5) alike:
//
//   score_bncs += distance_bias_n|c + offset - s|                                  (attention.11)
//   d_distance_bias_np = sum_bc d_score_bncs,  s = c + offset - p                   (attention.12)
//
// Long sums, over keys and over queries, are made of sums over tiles of 64, and those of very many with more digits
// than T has: they do not drift. A row that meets one tile is one sum.
//
// Masked keys must be finite numbers: they are multiplied by a weight of 0.

// A stride is the distance between two consecutive rows (0: N K), so that query, key and value may be slices of wider
// rows or one and the same array. B, C, S >= 0; N, K >= 1; on a GPU C, S, reach and the offset are below 2^30.
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

// Flops: 4 B N K per pair (c, s) that sees each other, which are C (C + 1) / 2 pairs when causal and C = S, else C S;
// pairs that do not are left out in tiles of 64 x 64. Memory: O((C + S) K) per head.
template <class T>
struct AttentionForward {
  T* out_bch;         // rows touch
  Accum<T>* lse_bnc;  // saved for backward, as are query, key, value and out
  AttentionInputs<T> in;
};
template <class Device, class T>
void attention_forward(Device&, const AttentionForward<T>&);

// For whoever looks: the weight of every pair as backward computes it again, (attention.5), 0 where c does not see s.
// In plain/ alone, from what forward read, values excepted, and the lse that it saved. weight_bncs: (B, N, C, S).
template <class Device, class T>
void attention_weights(Device&, T* weight_bncs, const Accum<T>* lse_bnc, const AttentionInputs<T>&);

// Flops: 10 B N K per pair (the scores are computed again). Scratch: O(B C N K).
template <class T>
struct AttentionBackward {
  T* d_query_bch;  // the three are overwritten and must not overlap (slices of one wider array are fine)
  T* d_key_bsh;
  T* d_value_bsh;
  Index d_query_stride = 0, d_key_stride = 0, d_value_stride = 0;
  const T* d_out_bch;  // rows touch, as those of out_bch
  const T* out_bch;
  const Accum<T>* lse_bnc;
  AttentionInputs<T> in;
};
template <class Device, class T>
void attention_backward(Device&, const AttentionBackward<T>&);

// The gradient of a bias of distances, of causal attention: (attention.12) for the distances p from first_n on that are
// within the window of the head, `most` of them at most; the others stay as they are. After attention_backward or
// before it. Flops: 4 B C N K for every distance.
template <class T>
struct AttentionBiasBackward {
  Accum<T>* d_distance_bias_np;
  const Index* first_n = nullptr;  // in memory of the device; null: 0
  Index most;
  const T* d_out_bch;
  const T* out_bch;
  const Accum<T>* lse_bnc;
  AttentionInputs<T> in;
};
template <class Device, class T>
void attention_bias_backward(Device&, const AttentionBiasBackward<T>&);

// The distances that it asks for.
template <class T>
ABH_HOST_DEVICE constexpr Stretch distances_of(const AttentionBiasBackward<T>& a, Index n) {
  const Index first = a.first_n ? a.first_n[n] : 0, reach = a.in.mask.of_head(n).window;
  const Index end = reach > 0 && reach < a.in.mask.distances ? reach : a.in.mask.distances;
  return {first, end < first + a.most ? end : first + a.most};
}

// Inference: one query that stands at the last of `length` positions, whose rows are cached and touch; (attention.1) to
// (attention.3). The cache may be a ring: the oldest position stands in row `oldest`, the others follow it, and behind
// row length - 1 comes row 0. Of its attention mask a step needs the window and the bias alone. key and value may be
// the same cache. length 0 gives 0. Flops: 4 N K for every row in reach; reads those of the caches once.
template <class T>
struct AttentionStep {
  T* out_h;
  const T* query_h;
  const T* key_ch;
  const T* value_ch;
  AttentionMask<Accum<T>> mask = {};
  double scale = 0;
  Index length, oldest = 0, N, K;

  // The row of position c of the cached ones.
  ABH_HOST_DEVICE constexpr Index row(Index c) const { return oldest + c < length ? oldest + c : oldest + c - length; }
};
template <class Device, class T>
void attention_step(Device&, const AttentionStep<T>&);

// The cached rows from the oldest to the newest: where they are, or copies where they stand in a ring.
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
