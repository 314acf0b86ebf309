#pragma once

#include "base/types.hpp"

namespace abh {

// The core of scaled dot-product attention on projected rows: every position mixes the values of the positions it sees,
// weighted by the softmax of query times key. Vaswani et al., "Attention is all you need", 2017; the running softmax
// that avoids a C x C matrix: Milakov, Gimelshein, "Online normalizer calculation for softmax", 2018. Derivation:
// docs/layers/attention.md.
//
// Rows are N heads of K channels side by side, h = n K + k. For position c, over the keys c' that it sees (those whose
// mask is 1 and, if causal, c' <= c):
//
//   score_bncc' = 1/sqrt(K) sum_k query_bcnk key_bc'nk                             (attention.1)
//   max_bnc = max_c' score_bncc',  sum_bnc = sum_c' exp(score_bncc' - max_bnc)     (attention.2)
//   out_bcnk = 1/sum_bnc sum_c' exp(score_bncc' - max_bnc) value_bc'nk             (attention.3)
//   lse_bnc = max_bnc + log sum_bnc                                                (attention.4)
//
// A position that sees no key: out 0, lse +infinity (so that every weight recomputed from it is 0), all gradients 0.
//
// Backward, the weights recomputed from lse; sums over c run over the queries that see c':
//
//   weight_bncc'  = exp(score_bncc' - lse_bnc)                                     (attention.5)
//   delta_bnc     = sum_k d_out_bcnk out_bcnk                                      (attention.6)
//   d_score_bncc' = weight_bncc' (sum_k d_out_bcnk value_bc'nk - delta_bnc)        (attention.7)
//   d_query_bcnk  = 1/sqrt(K) sum_c' d_score_bncc' key_bc'nk                       (attention.8)
//   d_key_bc'nk   = 1/sqrt(K) sum_c d_score_bncc' query_bcnk                       (attention.9)
//   d_value_bc'nk = sum_c weight_bncc' d_out_bcnk                                  (attention.10)
//
// Masked keys must be finite numbers: they are multiplied by a weight of 0.

// A stride is the distance between two consecutive rows (0: N K), so that query, key and value may be slices of wider
// rows or one and the same array. B, C >= 0; N, K >= 1. Flops: 4 B N K per pair (c, c') that sees each other, which are
// C (C + 1) / 2 pairs when causal, else C^2. Memory: O(C K) per head.
template <class T>
struct AttentionForward {
  T* out_bch;         // rows touch
  Accum<T>* lse_bnc;  // saved for backward, as are query, key, value and out
  const T* query_bch;
  const T* key_bch;
  const T* value_bch;
  Index query_stride = 0, key_stride = 0, value_stride = 0;
  const Token* mask_bc = nullptr;  // 1: real; 0: never attended to as a key; null: all real
  bool causal = true;
  Index B, C, N, K;
};
template <class Device, class T>
void attention_forward(Device&, const AttentionForward<T>&);

// Flops: 10 B N K per pair (the scores are computed again). Scratch: O(B C N K).
template <class T>
struct AttentionBackward {
  T* d_query_bch;  // the three are overwritten and must not overlap (slices of one wider array are fine)
  T* d_key_bch;
  T* d_value_bch;
  Index d_query_stride = 0, d_key_stride = 0, d_value_stride = 0;
  const T* d_out_bch;  // rows touch, as those of out_bch
  const T* out_bch;
  const Accum<T>* lse_bnc;
  const T* query_bch;
  const T* key_bch;
  const T* value_bch;
  Index query_stride = 0, key_stride = 0, value_stride = 0;
  const Token* mask_bc = nullptr;
  bool causal = true;
  Index B, C, N, K;
};
template <class Device, class T>
void attention_backward(Device&, const AttentionBackward<T>&);

// Inference: one query over `length` cached rows that touch, (attention.1) to (attention.3).
// key and value may be the same cache. length 0 gives 0. Flops: 4 N K length; reads the caches once.
template <class T>
struct AttentionStep {
  T* out_h;
  const T* query_h;
  const T* key_ch;
  const T* value_ch;
  Index length, N, K;
};
template <class Device, class T>
void attention_step(Device&, const AttentionStep<T>&);

}  // namespace abh
