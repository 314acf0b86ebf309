#pragma once

#include "base/types.hpp"

namespace abh {

// Attention over a set of keys, from attention over parts of it that have no key in common: each with the outputs of
// the queries and the log-sum-exp of their scores (attention.hpp). Chapter: extras/sparse/merge_softmax.md.
//
//   max_bnc = max_m lse_mbnc,  sum_bnc = sum_m exp(lse_mbnc - max_bnc)             (merge_softmax.1)
//   out_bcnk = 1/sum_bnc sum_m exp(lse_mbnc - max_bnc) out_mbcnk                   (merge_softmax.2)
//   lse_bnc = max_bnc + log sum_bnc                                                (merge_softmax.3)
//   lse_mbnc = lse_bnc                                                             (merge_softmax.4)
//
// A part in which a query sees nothing has lse +infinity there, and takes no part; where it sees nothing in any, out is
// 0 and lse +infinity.
//
// There is no backward pass. The weight of a pair, exp(score - lse), and delta of attention's backward pass are
// those of the whole row: attention_backward over every part, with the merged out and lse in the place of its own,
// gives the part's share of all gradients, and the shares add up. So (merge_softmax.4) leaves the merged lse where the
// part's own was.

// m: a part, whose sequences are those of the batch, or made of them: `rows` of them have the C positions of a sequence
// of the batch, position c that of row_c (null: c itself), and `positions` of them are a sequence of the part.
template <class T>
struct AttentionPart {
  const T* out_rh;    // rows touch
  Accum<T>* lse_bnc;  // of the part's own sequences and positions
  const Token* row_c = nullptr;
  Index rows, positions;
};

// Flops: 2 an element and part. One part or two; out_bch and lse_bnc may be those of a part whose rows are those of the
// batch.
template <class T>
struct MergeSoftmax {
  T* out_bch;  // rows touch
  Accum<T>* lse_bnc;
  AttentionPart<T> part[2];
  int parts;
  Index B, C, N, K;
};
template <class Device, class T>
void merge_softmax(Device&, const MergeSoftmax<T>&);

}  // namespace abh
