#pragma once

#include "base/types.hpp"
#include "layers/attention.hpp"

namespace abh {

// Core of additive attention on projected rows. The score of a query and a key is a small network with one hidden
// layer, instead of a dot product. Bahdanau, Cho, Bengio, "Neural machine translation by jointly learning to align and
// translate", 2015. Derivation: extras/bahdanau/bahdanau_attention.md.
//
// Arguments, rows, strides and the attention mask are those of attention.hpp; its scale is not used. score_nk, (N, K):
// output weights of the network. For query c, over the keys s to which it attends:
//
//   logit_bncs = sum_k score_nk tanh(query_bcnk + key_bsnk)                        (bahdanau_attention.1)
//   max_bnc = max_s logit_bncs,  sum_bnc = sum_s exp(logit_bncs - max_bnc)         (bahdanau_attention.2)
//   out_bcnk = 1/sum_bnc sum_s exp(logit_bncs - max_bnc) value_bsnk                (bahdanau_attention.3)
//   lse_bnc = max_bnc + log sum_bnc                                                (bahdanau_attention.4)
//
// |logit| is at most sum_k |score_nk| for any inputs. A query without keys: out 0, lse +infinity, all gradients 0.
//
// Backward pass, with weights and tanh recomputed; sums over c run over the queries that attend to s:
//
//   weight_bncs  = exp(logit_bncs - lse_bnc)                                       (bahdanau_attention.5)
//   delta_bnc    = sum_k d_out_bcnk out_bcnk                                       (bahdanau_attention.6)
//   d_logit_bncs = weight_bncs (sum_k d_out_bcnk value_bsnk - delta_bnc)           (bahdanau_attention.7)
//   d_query_bcnk = score_nk sum_s d_logit_bncs (1 - tanh(query_bcnk + key_bsnk)^2) (bahdanau_attention.8)
//   d_key_bsnk   = score_nk sum_c d_logit_bncs (1 - tanh(query_bcnk + key_bsnk)^2) (bahdanau_attention.9)
//   d_value_bsnk = sum_c weight_bncs d_out_bcnk                                    (bahdanau_attention.10)
//   d_score_nk  += sum_bcs d_logit_bncs tanh(query_bcnk + key_bsnk)                (bahdanau_attention.11)
//
// If the attention mask has a distance bias, it is added before (bahdanau_attention.2):
//
//   logit_bncs += distance_bias_n|c + offset - s|                                  (bahdanau_attention.12)
//
// Fast devices avoid the tanh of each pair. With exp(2 query) and exp(2 key), computed once per row,
//
//   rho_bncsk = 1 / (1 + exp(2 query_bcnk) exp(2 key_bsnk)),  tanh(query_bcnk + key_bsnk) = 1 - 2 rho_bncsk
//
// is one reciprocal per pair and channel. Both exponentials must be finite and not 0. Fast devices therefore use rho
// for a pair if no channel of its two rows exceeds 43 in this head, and tanh otherwise. The choice depends on these two
// rows alone, so no other row changes the result of a pair.
//
// Long sums have higher precision than their terms. Masked keys must be finite.

// For float: largest absolute values of rows, for the exponentials, and of scores, which multiply them.
inline constexpr float bahdanau_largest_row = 43, bahdanau_largest_score = 1 << 30;

// Flops: 7 B N K per attended pair (c, s). Memory: O((C + S) K) per head and worker.
template <class Device, class T>
void bahdanau_attention_forward(Device&, const AttentionForward<T>&, const T* score_nk);

// For inspection: (bahdanau_attention.5) for every pair, 0 if c does not attend to s. Only in plain/. Computed from the
// inputs of forward, except values, and the saved lse. weight_bncs: (B, N, C, S).
template <class Device, class T>
void bahdanau_attention_weights(Device&, T* weight_bncs, const Accum<T>* lse_bnc, const AttentionInputs<T>&,
                                const T* score_nk);

// Flops: 20 B N K per pair. The gradients of the rows are overwritten, d_score_nk is accumulated.
template <class Device, class T>
void bahdanau_attention_backward(Device&, const AttentionBackward<T>&, const T* score_nk, Accum<T>* d_score_nk);

// Inference: forward with C = 1; the query is at the last of `length` cached rows.
template <class Device, class T>
void bahdanau_attention_step(Device& device, const AttentionStep<T>& a, const T* score_nk) {
  typename Device::Scope scratch(device.workspace);
  const CachedRows<T> cached = in_order(device, scratch, a);
  AttentionMask<Accum<T>> mask = a.mask;
  mask.causal = true;
  mask.query_offset = a.length - 1;
  mask.mask_bs = nullptr;
  bahdanau_attention_forward<Device, T>(device,
                                        {.out_bch = a.out_h,
                                         .lse_bnc = scratch.template take<Accum<T>>(a.N),
                                         .in = {.query_bch = a.query_h,
                                                .key_bsh = cached.key_ch,
                                                .value_bsh = cached.value_ch,
                                                .mask = mask,
                                                .B = 1,
                                                .C = 1,
                                                .S = a.length,
                                                .N = a.N,
                                                .K = a.K}},
                                        score_nk);
}

}  // namespace abh
