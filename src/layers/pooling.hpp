#pragma once

#include "base/extras.hpp"
#include "base/types.hpp"

namespace abh {

// Pooling: each head computes a running weighted average of x. The weight of a position is e to the power of a scalar
// logit (pooling_logits.hpp). Source of additive attention: Wu, Wu, Qi, Huang, Xie, "Fastformer: additive attention can
// be all you need", 2021; here causal. Derivations: docs/layers/pooling.md. The equations hold for one head of one
// sequence, without the indices b and n: logit_c is a number, x_c and out_c are vectors of K channels.
//
//   out_c = (sum over c' <= c of e^logit_c' x_c') / (sum over c' <= c of e^logit_c')         (pooling.1) definition
//
// These two sums are never computed, because e^logit can overflow. If all positions so far are masked, out_c is 0. The
// state of a head is (max, sum, out). It starts as (-infinity, 0, 0). The recurrence:
//
//   max_c   = max(max_{c-1}, logit_c)                                                        (pooling.2)
//   sum_c   = sum_{c-1} e^(max_{c-1} - max_c) + e^(logit_c - max_c)                          (pooling.3)
//   alpha_c = e^(logit_c - max_c) / sum_c                                                    (pooling.4)
//   out_c   = out_{c-1} + alpha_c (x_c - out_{c-1})                                          (pooling.5)
//
// Backward; adjoint_c is the gradient of the state out_c, drift_c the gradient of max_c + log sum_c:
//
//   beta_c    = sum_{c-1} e^(max_{c-1} - max_c) / sum_c           (= 1 - alpha_c)            (pooling.6)
//   adjoint_c = d_out_c + beta_{c+1} adjoint_{c+1}                                           (pooling.7)
//   d_x_c     = alpha_c adjoint_c                                                            (pooling.8)
//   kappa_c   = (x_c - out_c) . adjoint_c                                                    (pooling.9)
//   d_logit_c = alpha_c (kappa_c + drift_c)                                                  (pooling.10)
//   drift_{c-1} = beta_c drift_c - alpha_c kappa_c,  drift_{C-1} = 0                         (pooling.11)
//
// Variants have their own headers: windows (pooling_sliding_window.hpp), decay of logits (pooling_decay.hpp), one
// average over all positions (pooling_bidirectional.hpp), chunks of a sequence (pooling_chunk.hpp).

// A row of x_bch contains payloads * N heads of K channels, h = m K + k; head m has the logits of head m mod N. A
// stride is the distance between consecutive rows; 0: payloads * N * K. With a stride, x may be a slice of wider rows.
struct PoolingShape {
  Index B, C, N, K;
  Index window = 0;    // in positions; 0, or at least C: no window
  bool causal = true;  // false: one average over all positions, without window and slope
  Index payloads = 1;  // groups of N heads that share the logits
  Index H() const { return payloads * N * K; }
};

// Inputs of both passes.
template <class T>
struct PoolingInputs {
  const Accum<T>* logit_bnc;
  const T* x_bch;
  Index x_stride = 0;
  const Accum<T>* slope_n = nullptr;  // decay per position, >= 0; null: no decay
  const Token* mask_bc = nullptr;     // 1: real, 0: masked; null: all real
  PoolingShape shape;
};

// Rounding errors at the borders of chunks (B = 1, no window). The first position may be the average of all earlier
// chunks, in more than float precision. `first` contains the rounding error of its logit and its x; `last` receives the
// rounding errors of the last sum and average. Null: none.
template <class Element>
struct PoolingLowPart {
  Element* weight_n = nullptr;
  Element* payload_h = nullptr;
};

// Saved for backward: max_bnc, sum_bnc, the logits, x and out. No finite logit overflows. 3 flops per element. x is
// read once (twice on a CPU with few long sequences), and out is written once. Two exponentials per position and head.
// The logarithm of the sum of weights up to position c is max_bnc + log sum_bnc.
template <class T>
struct PoolingForward {
  T* out_bch;  // contiguous rows; not x
  Accum<T>* max_bnc;
  Accum<T>* sum_bnc;
  PoolingInputs<T> in;
  PoolingLowPart<const Accum<T>> first{};
  PoolingLowPart<Accum<T>> last{};
};
template <class Device, class T>
void pooling_forward(Device&, const PoolingForward<T>&);

// 6 flops per element. Reads d_out, x and out, writes d_x. Masked positions get gradients of exactly 0. Without d_lse,
// sum_c d_logit_bnc = 0 for every head, because a constant added to all logits does not change out.
template <class T>
struct PoolingBackward {
  T* d_x_bch;  // overwritten, or added to if `accumulate` is true
  Index d_x_stride = 0;
  bool accumulate = false;
  Accum<T>* d_logit_bnc;                // overwritten
  const T* d_out_bch;                   // contiguous rows
  const Accum<T>* d_lse_bnc = nullptr;  // gradient of max + log sum; null: 0. Not read if all positions are masked.
  const T* out_bch;
  const Accum<T>* max_bnc;
  const Accum<T>* sum_bnc;
  PoolingInputs<T> in;
};
template <class Device, class T>
void pooling_backward(Device&, const PoolingBackward<T>&);

// Variants of features (extras/bidirectional, extras/windows). pooling_forward and pooling_backward call them if a
// position does not attend to exactly the positions up to its own.
template <class Device, class T>
void pooling_bidirectional_forward(Device&, const PoolingForward<T>&);
template <class Device, class T>
void pooling_bidirectional_backward(Device&, const PoolingBackward<T>&);
template <class Device, class T>
void pooling_sliding_window_forward(Device&, const PoolingForward<T>&);
template <class Device, class T>
void pooling_sliding_window_backward(Device&, const PoolingBackward<T>&);

// The definitions (pooling.1) and (pooling_decay.1) and their gradients, as sums over all positions in the window. Only
// in plain/, as a reference for the recurrences. They do not use max_bnc and sum_bnc, and backward does not read
// out_bch.
template <class Device, class T>
void pooling_definition_forward(Device&, const PoolingForward<T>&);
template <class Device, class T>
void pooling_definition_backward(Device&, const PoolingBackward<T>&);

// For inspection: weight of position s in the average at position c, (B, N, C, C); 0 if s is not part of the average.
// Only in plain/; does not read x.
template <class Device, class T>
void pooling_weights(Device&, T* weight_bncs, const PoolingInputs<T>&);

// Size of the state for decoding one causal sequence. B and C of the shape are ignored, so only window 0 means no
// window. A running state contains, per head: top, sum, payloads * K averages, and the rounding errors of the sum and
// of each average; with decay also the age. A window w has w + 1 such states and a counter. The size does not depend on
// the length of the sequence. A float counts an age exactly up to 2^24; the age restarts at 0 with every new top.
constexpr Index pooling_state_size(const PoolingShape& shape, bool decays = false) {
  const Index states = shape.N * (2 * (shape.payloads * shape.K + 1) + 1 + (decays ? 1 : 0));
  return shape.window > 0 ? 1 + (shape.window + 1) * states : states;
}

// Initialises the state before the first position.
template <class Device, class T>
void pooling_start(Device&, Accum<T>* state, const PoolingShape&, bool decays = false);

// Computes one position: reads logit_n and x_h, updates the state, writes out_h, max_n and sum_n. 3 flops per element
// of x without a window, else about 9 on average: each w-th step recomputes a block of w positions.
template <class T>
struct PoolingStep {
  T* out_h;
  Accum<T>* max_n;
  Accum<T>* sum_n;
  Accum<T>* state;
  const Accum<T>* logit_n;
  const T* x_h;
  const Accum<T>* slope_n = nullptr;  // not null if the state has decay
  PoolingShape shape;
};
template <class Device, class T>
void pooling_step(Device&, const PoolingStep<T>&);

}  // namespace abh
