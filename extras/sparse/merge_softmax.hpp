#pragma once

#include "base/types.hpp"

namespace abh {

// Merges attention over disjoint subsets of keys ("parts"): each part has outputs of the queries and the log-sum-exp of
// their scores (attention.hpp). Chapter: extras/sparse/merge_softmax.md.
//
//   max_bnc = max_m lse_mbnc,  sum_bnc = sum_m exp(lse_mbnc - max_bnc)             (merge_softmax.1)
//   out_bcnk = 1/sum_bnc sum_m exp(lse_mbnc - max_bnc) out_mbcnk                   (merge_softmax.2)
//   lse_bnc = max_bnc + log sum_bnc                                                (merge_softmax.3)
//   lse_mbnc = lse_bnc                                                             (merge_softmax.4)
//
// A part without keys for a query has lse +infinity there and weight 0. If no part has keys for it, out is 0 and lse
// +infinity.
//
// There is no backward pass. In attention's backward pass the weight of a pair, exp(score - lse), and delta are those
// of the whole row. Therefore attention_backward over each part, with the merged out and lse instead of its own, gives
// the part's share of all gradients; the shares are summed. (merge_softmax.4) overwrites the lse of each part with the
// merged lse.

// m: a part. Its sequences are those of the batch or made from them: `rows` rows hold the C positions of a batch
// sequence, position c in row_c (null: row c), and a sequence of the part has `positions` of these rows.
template <class T>
struct AttentionPart {
  const T* out_rh;    // contiguous rows
  Accum<T>* lse_bnc;  // by sequence and position of the part
  const Token* row_c = nullptr;
  Index rows, positions;
};

// Flops: 2 per element and part. One part or two; out_bch and lse_bnc may be those of a part with the rows of the
// batch.
template <class T>
struct MergeSoftmax {
  T* out_bch;  // contiguous rows
  Accum<T>* lse_bnc;
  AttentionPart<T> part[2];
  int parts;
  Index B, C, N, K;
};
template <class Device, class T>
void merge_softmax(Device&, const MergeSoftmax<T>&);

}  // namespace abh
