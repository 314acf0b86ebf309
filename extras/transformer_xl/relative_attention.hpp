#pragma once

#include <algorithm>

#include "base/types.hpp"
#include "layers/attention.hpp"

namespace abh {

// Attention by content and by distance, with segments: a query attends to its own segment up to itself and to the
// `memory` positions before the segment. No gradient flows from memory positions to the rows from which they were
// computed. Dai et al., "Transformer-XL: attentive language models beyond a fixed-length context", 2019. Derivation:
// extras/transformer_xl/relative_attention.md.
//
// Arguments, rows and strides are those of attention.hpp. The attention mask is causal; its offset and mask are used,
// its window and distance bias are not. Row p of rho_ph, (P, N K), belongs to distance p; the last row also to all
// longer distances. content_bias_nk and position_bias_nk, (N, K), are weights of the layer.
//
// The segment of query c begins with query first_c = c - c mod segment. The distance of key s is p = min(c + offset -
// s, P - 1). For query c, over its keys s, first_c + offset - memory <= s <= c + offset:
//
//   score_bncs = 1/sqrt(K) sum_k ((query_bcnk + content_bias_nk) key_bsnk
//                                 + (query_bcnk + position_bias_nk) rho_pnk)       (relative_attention.1)
//   max_bnc = max_s score_bncs,  sum_bnc = sum_s exp(score_bncs - max_bnc)         (relative_attention.2)
//   out_bcnk = 1/sum_bnc sum_s exp(score_bncs - max_bnc) value_bsnk                (relative_attention.3)
//   lse_bnc = max_bnc + log sum_bnc                                                (relative_attention.4)
//
// A query without keys: out 0, lse +infinity, all gradients 0.
//
// Backward pass, with weights recomputed from lse:
//
//   weight_bncs  = exp(score_bncs - lse_bnc)                                       (relative_attention.5)
//   delta_bnc    = sum_k d_out_bcnk out_bcnk                                       (relative_attention.6)
//   d_score_bncs = weight_bncs (sum_k d_out_bcnk value_bsnk - delta_bnc)           (relative_attention.7)
//   d_content_bcnk  = 1/sqrt(K) sum_s d_score_bncs key_bsnk                        (relative_attention.8)
//   d_position_bcnk = 1/sqrt(K) sum_s d_score_bncs rho_pnk                         (relative_attention.9)
//   d_query_bcnk = d_content_bcnk + d_position_bcnk                                (relative_attention.10)
//   d_content_bias_nk  += sum_bc d_content_bcnk                                    (relative_attention.11)
//   d_position_bias_nk += sum_bc d_position_bcnk                                   (relative_attention.12)
//   d_rho_pnk = 1/sqrt(K) sum_bcs d_score_bncs (query_bcnk + position_bias_nk)     (relative_attention.13)
//
// over the pairs at distance p. Keys and values have separate gradients from queries of their own segment and, as
// memory, from queries of later segments. Over the queries c of the segment of s,
//
//   d_key_bsnk   = 1/sqrt(K) sum_c d_score_bncs (query_bcnk + content_bias_nk)     (relative_attention.14)
//   d_value_bsnk = sum_c weight_bncs d_out_bcnk                                    (relative_attention.15)
//
// and over the queries of later segments the same sums are d_past_key_bsnk and d_past_value_bsnk.
//
// Long sums consist of partial sums of at most 64 terms, which are added in higher precision than T. Masked keys must
// be finite. An explicit scale replaces 1/sqrt(K) everywhere.

// segment, P >= 1; memory >= 0; K at most relative_attention_most_channels on a GPU.
template <class T>
struct RelativeTerms {
  const T* content_bias_nk;
  const T* position_bias_nk;
  const T* rho_ph;
  Index distances;  // P
  Index segment, memory;

  ABH_HOST_DEVICE constexpr Index begin_of(Index c) const { return c - c % segment; }
  // Keys of query c within a sequence.
  ABH_HOST_DEVICE constexpr Stretch keys_of(Index c, Index offset) const {
    const Index first = begin_of(c) + offset - memory;
    return {first > 0 ? first : 0, c + offset + 1};
  }
  // The contiguous range of the C queries that attend to key s. It begins at position s and ends with the last segment
  // whose memory contains s.
  ABH_HOST_DEVICE constexpr Stretch queries_of(Index s, Index offset, Index C) const {
    const Index at = s - offset, first = at > 0 ? at : 0;
    const Index last_begin = at + memory < 0 ? -segment : begin_of(at + memory), end = last_begin + segment;
    const Index own_end = at < 0 ? 0 : begin_of(at) + segment, later = end > own_end ? end : own_end;
    return {first, later < C ? later : C};
  }
  // The first of these queries that belongs to a later segment than s.
  ABH_HOST_DEVICE constexpr Index own_end(Index s, Index offset) const {
    return s < offset ? 0 : begin_of(s - offset) + segment;
  }
  ABH_HOST_DEVICE constexpr Index row_of(Index distance) const {
    return distance < distances ? distance : distances - 1;
  }
};

// Flops: 6 B N K per attended pair (c, s). Memory: O((C + S + P) K) per head.
template <class Device, class T>
void relative_attention_forward(Device&, const AttentionForward<T>&, const RelativeTerms<T>&);

// For inspection: (relative_attention.5) for every pair, 0 if c does not attend to s. Only in plain/. Computed from the
// inputs of forward, except values, and the saved lse. weight_bncs: (B, N, C, S).
template <class Device, class T>
void relative_attention_weights(Device&, T* weight_bncs, const Accum<T>* lse_bnc, const AttentionInputs<T>&,
                                const RelativeTerms<T>&);

// d_past_key and d_past_value, with the strides of d_key_bsh and d_value_bsh, and d_rho are overwritten. The gradients
// of the two biases are accumulated.
template <class T>
struct RelativeGradients {
  T* d_past_key_bsh;
  T* d_past_value_bsh;
  T* d_rho_ph;
  Accum<T>* d_content_bias_nk;
  Accum<T>* d_position_bias_nk;
};

// Flops: 16 B N K per pair. Scratch: O(B (C + P) N K).
template <class Device, class T>
void relative_attention_backward(Device&, const AttentionBackward<T>&, const RelativeTerms<T>&,
                                 const RelativeGradients<T>&);

// Inference: forward with C = 1; the query is at the last of `length` cached rows and attends to all of them.
template <class Device, class T>
void relative_attention_step(Device& device, const AttentionStep<T>& a, const RelativeTerms<T>& terms) {
  typename Device::Scope scratch(device.workspace);
  RelativeTerms<T> of_all = terms;
  of_all.segment = 1;
  of_all.memory = a.length;
  relative_attention_forward<Device, T>(device,
                                        {.out_bch = a.out_h,
                                         .lse_bnc = scratch.template take<Accum<T>>(a.N),
                                         .in = {.query_bch = a.query_h,
                                                .key_bsh = a.key_ch,
                                                .value_bsh = a.value_ch,
                                                .mask = {.query_offset = a.length - 1},
                                                .scale = a.scale,
                                                .B = 1,
                                                .C = 1,
                                                .S = a.length,
                                                .N = a.N,
                                                .K = a.K}},
                                        of_all);
}

}  // namespace abh
