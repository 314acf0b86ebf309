#pragma once

#include "base/extras.hpp"
#include "base/types.hpp"

namespace abh {

// Pooling: every head keeps a running weighted average of its payload, the weight of a position being e to the power of
// a scalar logit (pooling_logits.hpp). It is the heart of additive attention: Wu, Wu, Qi, Huang, Xie, "Fastformer:
// additive attention can be all you need", 2021, made causal. Derivations: docs/layers/pooling.md. One head of one
// sequence is meant, b and n are left out: logit_c is a number, x_c and out_c are vectors of K channels.
//
//   out_c = (sum over c' <= c of e^logit_c' x_c') / (sum over c' <= c of e^logit_c')         (pooling.1) definition
//
// A position that sees nothing but what is masked yields 0. The sums are never formed: e^logit overflows. The state of
// a head is (max, sum, out), its start (-infinity, 0, 0), its step
//
//   max_c   = max(max_{c-1}, logit_c)                                                        (pooling.2)
//   sum_c   = sum_{c-1} e^(max_{c-1} - max_c) + e^(logit_c - max_c)                          (pooling.3)
//   alpha_c = e^(logit_c - max_c) / sum_c                                                    (pooling.4)
//   out_c   = out_{c-1} + alpha_c (x_c - out_{c-1})                                          (pooling.5)
//
// Backward. adjoint_c is the gradient of the state out_c, drift_c that of max_c + log sum_c:
//
//   beta_c    = sum_{c-1} e^(max_{c-1} - max_c) / sum_c           (= 1 - alpha_c)            (pooling.6)
//   adjoint_c = d_out_c + beta_{c+1} adjoint_{c+1}                                           (pooling.7)
//   d_x_c     = alpha_c adjoint_c                                                            (pooling.8)
//   kappa_c   = (x_c - out_c) . adjoint_c                                                    (pooling.9)
//   d_logit_c = alpha_c (kappa_c + drift_c)                                                  (pooling.10)
//   drift_{c-1} = beta_c drift_c - alpha_c kappa_c,  drift_{C-1} = 0                         (pooling.11)
//
// Other variants of the same call have headers of their own: windows (pooling_sliding_window.hpp), logits that decay
// (pooling_decay.hpp), one average of all positions (pooling_bidirectional.hpp), the borders of a sequence in chunks
// (pooling_chunk.hpp).

// Payload rows x_bch are payloads * N heads of K channels side by side, h = m K + k; head m is weighed by the logits of
// head m mod N. A stride is the distance between two consecutive rows (0: payloads * N * K), so that x may be a slice
// of a wider array.
struct PoolingShape {
  Index B, C, N, K;
  Index window = 0;    // positions; 0, or at least C: global
  bool causal = true;  // else every position sees every one: a global window and no slope
  Index payloads = 1;  // rows of N heads that one logit weighs
  Index H() const { return payloads * N * K; }
};

// The inputs of both passes.
template <class T>
struct PoolingInputs {
  const Accum<T>* logit_bnc;
  const T* x_bch;
  Index x_stride = 0;
  const Accum<T>* slope_n = nullptr;  // decay a position, at least 0; null: none
  const Token* mask_bc = nullptr;     // 1: real, 0: left out; null: all real
  PoolingShape shape;
};

// A first position that stands for many (B = 1, global) has more digits than a float: `first` is what rounding left of
// its logit and payload, `last` where to write what it left of the last position's sum and average. Null: none.
template <class Element>
struct PoolingLowPart {
  Element* weight_n = nullptr;
  Element* payload_h = nullptr;
};

// Saved for backward: max_bnc, sum_bnc, the logits, x and out. Any finite logits will do; no finite logit overflows.
// 3 flops an element, x read once (twice on a CPU with few long sequences), out written once, two exponentials a
// position and head (not a channel). max_bnc and sum_bnc hold every position's logarithm of the sum of weights as
// max + log sum.
template <class T>
struct PoolingForward {
  T* out_bch;  // rows touch; not x
  Accum<T>* max_bnc;
  Accum<T>* sum_bnc;
  PoolingInputs<T> in;
  PoolingLowPart<const Accum<T>> first{};
  PoolingLowPart<Accum<T>> last{};
};
template <class Device, class T>
void pooling_forward(Device&, const PoolingForward<T>&);

// 6 flops an element; reads d_out, x and out, writes d_x. Positions left out by the mask get gradients of exactly 0.
// Without d_lse sum_c d_logit_bnc = 0 for every head: adding a constant to all logits changes nothing.
template <class T>
struct PoolingBackward {
  T* d_x_bch;  // overwritten, or added to where `accumulate` is set
  Index d_x_stride = 0;
  bool accumulate = false;
  Accum<T>* d_logit_bnc;                // overwritten
  const T* d_out_bch;                   // rows touch
  const Accum<T>* d_lse_bnc = nullptr;  // of max + log sum; null: 0. Not read where a position sees nothing.
  const T* out_bch;
  const Accum<T>* max_bnc;
  const Accum<T>* sum_bnc;
  PoolingInputs<T> in;
};
template <class Device, class T>
void pooling_backward(Device&, const PoolingBackward<T>&);

// The forms of pooling that features compute (extras/bidirectional, extras/windows), to which pooling_forward and
// pooling_backward turn where not all positions so far are seen, and no others.
template <class Device, class T>
void pooling_bidirectional_forward(Device&, const PoolingForward<T>&);
template <class Device, class T>
void pooling_bidirectional_backward(Device&, const PoolingBackward<T>&);
template <class Device, class T>
void pooling_sliding_window_forward(Device&, const PoolingForward<T>&);
template <class Device, class T>
void pooling_sliding_window_backward(Device&, const PoolingBackward<T>&);

// (pooling.1) and (pooling_decay.1) themselves and their gradients, as sums over all that is seen: in plain/ alone,
// where the recurrences have what they are compared with. Neither max_bnc nor sum_bnc is written or read, and backward
// does not read out_bch.
template <class Device, class T>
void pooling_definition_forward(Device&, const PoolingForward<T>&);
template <class Device, class T>
void pooling_definition_backward(Device&, const PoolingBackward<T>&);

// For whoever looks: what position c gives to position s, the weights of these sums, (B, N, C, C); 0 where c does not
// see s. In plain/ alone, from what forward read, x excepted.
template <class Device, class T>
void pooling_weights(Device&, T* weight_bncs, const PoolingInputs<T>&);

// Step-by-step inference for one sequence, causal. Shape's B and C are not read, so that only a window of 0 is global
// here. The state is an array of (top, sum, payloads * K averages, and what rounding left of the sum and of each
// average), with decay also the age, for every head: one running state, and for a window w of them plus a counter. It
// is constant, however long the sequence becomes: a float counts an age up to 2^24, and an age starts anew with every
// new top.
constexpr Index pooling_state_size(const PoolingShape& shape, bool decays = false) {
  const Index states = shape.N * (2 * (shape.payloads * shape.K + 1) + 1 + (decays ? 1 : 0));
  return shape.window > 0 ? 1 + (shape.window + 1) * states : states;
}

// The state before the first position.
template <class Device, class T>
void pooling_start(Device&, Accum<T>* state, const PoolingShape&, bool decays = false);

// One position: reads logit_n and x_h, updates the state, writes out_h, max_n and sum_n. 3 flops a number of the
// payload for a global window, about 9 on average for any other; the step that completes a block of w positions pays
// for the block.
template <class T>
struct PoolingStep {
  T* out_h;
  Accum<T>* max_n;
  Accum<T>* sum_n;
  Accum<T>* state;
  const Accum<T>* logit_n;
  const T* x_h;
  const Accum<T>* slope_n = nullptr;  // not null where the state decays
  PoolingShape shape;
};
template <class Device, class T>
void pooling_step(Device&, const PoolingStep<T>&);

}  // namespace abh
