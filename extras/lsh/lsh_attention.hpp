#pragma once

#include "base/types.hpp"

namespace abh {

// Attention within hash buckets: random rotations assign nearby queries and keys to one bucket, in one round or
// several. One softmax covers all keys of all rounds. Kitaev, Kaiser, Levskaya, "Reformer: the efficient transformer",
// 2020. Derivation: extras/lsh/lsh_attention.md.
//
// Rows are N heads of K adjacent channels. The query of a position, scaled to length sqrt(K), is also its key:
//
//   length_bcn = (1/K sum_k query_bcnk^2 + epsilon)^(1/2)                          (lsh_attention.1)
//   key_bcnk = query_bcnk / length_bcn                                             (lsh_attention.2) definition
//
// Each of U rounds rotates the queries into R coordinates, sorts positions by the largest coordinate (bucket), and cuts
// the sorted sequence into pieces:
//
//   rotated_bnucr = sum_k query_bcnk rotations_nukr                                (lsh_attention.3)
//   bucket_bnuc = argmax over the 2 R numbers (rotated_bnuc, -rotated_bnuc), the first of equals   (lsh_attention.4)
//   place_bnuc = number of positions before c in the order by (bucket, position)   (lsh_attention.5)
//   piece_bnuc = floor(place_bnuc / piece_size)                                    (lsh_attention.6)
//
// In a round, query c meets the keys of its own piece and of the previous piece, with s != c and, if causal, s < c;
// optionally only keys of its own bucket. meets_bncs is the number of rounds in which c meets s. count_bncs is 1 if
// meets_bncs > 0, or meets_bncs itself if duplicates are counted. Over the keys s with meets_bncs > 0,
//
//   score_bncs = 1/sqrt(K) sum_k query_bcnk key_bsnk                               (lsh_attention.7)
//   max_bnc = max_s score_bncs,  sum_bnc = sum_s count_bncs exp(score_bncs - max_bnc)          (lsh_attention.8)
//   out_bcnk = 1/sum_bnc sum_s count_bncs exp(score_bncs - max_bnc) value_bsnk     (lsh_attention.9)
//   lse_bnc = max_bnc + log sum_bnc                                                (lsh_attention.10)
//
// A position that meets no key in any round outputs its own value: out_bcnk = value_bcnk, lse +infinity.
//
// Backward pass. Buckets and places are constants, and weights are recomputed from lse; sums over c run over the
// queries that meet s:
//
//   weight_bncs  = count_bncs exp(score_bncs - lse_bnc)                            (lsh_attention.11)
//   delta_bnc    = sum_k d_out_bcnk out_bcnk                                       (lsh_attention.12)
//   d_score_bncs = weight_bncs (sum_k d_out_bcnk value_bsnk - delta_bnc)           (lsh_attention.13)
//   d_asked_bcnk = 1/sqrt(K) sum_s d_score_bncs key_bsnk                           (lsh_attention.14)
//   d_key_bsnk   = 1/sqrt(K) sum_c d_score_bncs query_bcnk                         (lsh_attention.15)
//   d_query_bcnk = d_asked_bcnk + (d_key_bcnk - key_bcnk 1/K sum_k' key_bcnk' d_key_bcnk') / length_bcn
//                                                                                  (lsh_attention.16)
//   d_value_bsnk = sum_c weight_bncs d_out_bcnk, and d_out_bsnk where s meets no key   (lsh_attention.17)
//
// A masked position is no key of any query. It is sorted after all buckets, so it moves no other position to another
// piece. Its numbers must be finite.
inline constexpr double lsh_epsilon = 1e-6;

// Results of the hash rounds, (B, N, U, C) each; position_bnuc is the position at a sorted place. Element is Token, or
// const Token for readers.
template <class Element>
struct LshOrder {
  Element* bucket_bnuc;  // 2 R for masked positions
  Element* place_bnuc;
  Element* position_bnuc;
};

// (lsh_attention.3) to (lsh_attention.5). A stride is the distance between two consecutive rows (0: N K). B, C >= 0; N,
// K, U, R >= 1; C below 2^24. Flops: 2 B C N K U R.
template <class T>
struct LshOrdering {
  LshOrder<Token> out;
  const T* query_bch;
  Index query_stride = 0;
  const T* rotations_nukr;
  const Token* mask_bc = nullptr;  // 1: real; null: all real
  bool buckets_stand = false;      // true: buckets are inputs; false: they are computed first
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

// Flops: 4 B N K per pair of a query and a place in its piece or the previous piece: U C queries with 2 piece_size
// places each. Memory: O(C K) per head.
template <class T>
struct LshForward {
  T* out_bch;         // contiguous rows
  Accum<T>* lse_bnc;  // saved for backward, as are query, value, out and the order
  LshInputs<T> in;
};
template <class Device, class T>
void lsh_attention_forward(Device&, const LshForward<T>&);

// For inspection: (lsh_attention.11) for every pair; 0 if they do not meet, 1 for a position with itself if it meets no
// key. Only in plain/. Computed from the inputs of forward, except values, and the saved lse.
template <class Device, class T>
void lsh_attention_weights(Device&, T* weight_bncs, const Accum<T>* lse_bnc, const LshInputs<T>&);

// Flops: 10 B N K per such pair. Scratch: O(B C N K).
template <class T>
struct LshBackward {
  T* d_query_bch;  // both are overwritten
  T* d_value_bch;
  Index d_query_stride = 0, d_value_stride = 0;
  const T* d_out_bch;  // contiguous rows, as those of out_bch
  const T* out_bch;
  const Accum<T>* lse_bnc;
  LshInputs<T> in;
};
template <class Device, class T>
void lsh_attention_backward(Device&, const LshBackward<T>&);

}  // namespace abh
