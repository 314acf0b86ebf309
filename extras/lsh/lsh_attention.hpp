#pragma once

#include "base/types.hpp"

namespace abh {

// Attention over candidates that hashing finds: a query meets the keys that random rotations throw near it, in one
// round or in several, and mixes their values by one softmax over all whom it has met. Kitaev, Kaiser, Levskaya,
// "Reformer: the efficient transformer", 2020. Derivation: extras/lsh/lsh_attention.md.
//
// Rows are N heads of K channels side by side. A position is its own query and its own key, at length sqrt(K):
//
//   length_bcn = (1/K sum_k query_bcnk^2 + epsilon)^(1/2)                          (lsh_attention.1)
//   key_bcnk = query_bcnk / length_bcn                                             (lsh_attention.2) definition
//
// Round u of U rotates queries into R coordinates, sorts positions by what is largest there, and cuts the sorted
// sequence into pieces:
//
//   rotated_bnucr = sum_k query_bcnk rotations_nukr                                (lsh_attention.3)
//   bucket_bnuc = argmax over the 2 R numbers (rotated_bnuc, -rotated_bnuc), the first of equals   (lsh_attention.4)
//   place_bnuc = number of positions before c in the order by (bucket, position)   (lsh_attention.5)
//   piece_bnuc = floor(place_bnuc / piece_size)                                    (lsh_attention.6)
//
// In a round c meets those of its own piece and of the one before, s != c and, where it is causal, s < c; within a
// bucket only those of its own, where that is asked for. meets_bncs is the number of rounds in which it does;
// count_bncs is 1 where that is above 0, or meets_bncs itself where duplicates are counted. Over the keys s with
// meets_bncs > 0,
//
//   score_bncs = 1/sqrt(K) sum_k query_bcnk key_bsnk                               (lsh_attention.7)
//   max_bnc = max_s score_bncs,  sum_bnc = sum_s count_bncs exp(score_bncs - max_bnc)          (lsh_attention.8)
//   out_bcnk = 1/sum_bnc sum_s count_bncs exp(score_bncs - max_bnc) value_bsnk     (lsh_attention.9)
//   lse_bnc = max_bnc + log sum_bnc                                                (lsh_attention.10)
//
// A position that meets nobody in any round has its own value: out_bcnk = value_bcnk, and lse +infinity.
//
// Backward. Buckets and places are constants, the weights are recomputed from lse; sums over c run over the queries
// that meet s:
//
//   weight_bncs  = count_bncs exp(score_bncs - lse_bnc)                            (lsh_attention.11)
//   delta_bnc    = sum_k d_out_bcnk out_bcnk                                       (lsh_attention.12)
//   d_score_bncs = weight_bncs (sum_k d_out_bcnk value_bsnk - delta_bnc)           (lsh_attention.13)
//   d_asked_bcnk = 1/sqrt(K) sum_s d_score_bncs key_bsnk                           (lsh_attention.14)
//   d_key_bsnk   = 1/sqrt(K) sum_c d_score_bncs query_bcnk                         (lsh_attention.15)
//   d_query_bcnk = d_asked_bcnk + (d_key_bcnk - key_bcnk 1/K sum_k' key_bcnk' d_key_bcnk') / length_bcn
//                                                                                  (lsh_attention.16)
//   d_value_bsnk = sum_c weight_bncs d_out_bcnk, and d_out_bsnk where s meets nobody   (lsh_attention.17)
//
// A masked position is met by nobody and stands behind all buckets, so that it moves no other into another piece. It
// must hold finite numbers.
inline constexpr double lsh_epsilon = 1e-6;

// The results of a call's hash rounds, (B, N, U, C) each; position_bnuc says who stands at a place. Element is Token,
// or const Token for whoever reads them.
template <class Element>
struct LshOrder {
  Element* bucket_bnuc;  // 2 R for masked positions
  Element* place_bnuc;
  Element* position_bnuc;
};

// (lsh_attention.3) to (lsh_attention.5). A stride is the distance between two consecutive rows (0: N K). B, C >= 0;
// N, K, U, R >= 1; C below 2^24. Flops: 2 B C N K U R.
template <class T>
struct LshOrdering {
  LshOrder<Token> out;
  const T* query_bch;
  Index query_stride = 0;
  const T* rotations_nukr;
  const Token* mask_bc = nullptr;  // 1: real; null: all real
  bool buckets_stand = false;      // they are read; else they are found first
  Index B, C, N, K, U, R;
};
template <class Device, class T>
void lsh_order(Device&, const LshOrdering<T>&);

// piece_size, in positions: 1 to 2^24.
template <class T>
struct LshInputs {
  const T* query_bch;
  const T* value_bch;
  Index query_stride = 0, value_stride = 0;
  LshOrder<const Token> order;
  const Token* mask_bc = nullptr;
  bool causal = true, counted = false, within_bucket = false;
  Index piece_size;
  Index B, C, N, K, U;
};

// Flops: 4 B N K for every pair of a query with a place of its piece or the one before, which are U C pieces of
// 2 piece_size. Memory: O(C K) per head.
template <class T>
struct LshForward {
  T* out_bch;         // rows touch
  Accum<T>* lse_bnc;  // saved for backward, as are query, value, out and the order
  LshInputs<T> in;
};
template <class Device, class T>
void lsh_attention_forward(Device&, const LshForward<T>&);

// For whoever looks: (lsh_attention.11) for every pair, 0 where they do not meet, 1 for a position with itself that
// meets nobody. In plain/ alone, from what forward read, values excepted, and the lse that it saved.
template <class Device, class T>
void lsh_attention_weights(Device&, T* weight_bncs, const Accum<T>* lse_bnc, const LshInputs<T>&);

// Flops: 10 B N K for every such pair. Scratch: O(B C N K).
template <class T>
struct LshBackward {
  T* d_query_bch;  // both are overwritten
  T* d_value_bch;
  Index d_query_stride = 0, d_value_stride = 0;
  const T* d_out_bch;  // rows touch, as those of out_bch
  const T* out_bch;
  const Accum<T>* lse_bnc;
  LshInputs<T> in;
};
template <class Device, class T>
void lsh_attention_backward(Device&, const LshBackward<T>&);

}  // namespace abh
