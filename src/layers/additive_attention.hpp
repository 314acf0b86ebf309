#pragma once

#include "base/types.hpp"
#include "layers/dropout.hpp"

namespace abh {

// Additive attention: every head keeps a running weighted average of its payload, the weight of a position being e to
// the power of a scalar logit. Wu, Wu, Qi, Huang, Xie, "Fastformer: additive attention can be all you need", 2021, made
// causal. Derivations: docs/layers/additive_attention.md.
//
//   logit_bnc = sum_k x_bcnk pool_nk / sqrt(K), or -infinity where the mask leaves c out      (additive_attention.1)
//   out_bnck  = sum_c' e^logit_bnc' x_bnc'k / sum_c' e^logit_bnc'
//
// over the positions c' <= c, of which a window keeps the last w. A position that sees nothing yields 0. The sums are
// never formed: e^logit overflows. The state of a head is (max, sum, out), its start (-infinity, 0, 0), its step
//
//   max_c   = max(max_{c-1}, logit_c)                                                        (additive_attention.2)
//   sum_c   = sum_{c-1} e^(max_{c-1} - max_c) + e^(logit_c - max_c)                          (additive_attention.3)
//   alpha_c = e^(logit_c - max_c) / sum_c                                                    (additive_attention.4)
//   out_c   = out_{c-1} + alpha_c (x_c - out_{c-1})                                          (additive_attention.5)
//
// A window w < C cuts the positions into blocks of w. The same recurrence, started anew in every block, gives prefixes
// (from the start of its block to c); run backwards, it gives suffixes (from c to the end of its block). The window of
// c is the suffix from c-w+1 and the prefix to c, merged; only weights > 0 are added, nothing is ever subtracted:
//
//   max_c   = max(max_suffix, max_prefix),
//   sum_c   = sum_suffix e^(max_suffix - max_c) + sum_prefix e^(max_prefix - max_c)          (additive_attention.6)
//   gamma_c = sum_suffix e^(max_suffix - max_c) / sum_c                                      (additive_attention.7)
//   out_c   = prefix_c + gamma_c (suffix_{c-w+1} - prefix_c)                                 (additive_attention.8)
//
// Backward, global. adjoint_c is the gradient of the state out_c, drift_c that of max_c + log sum_c:
//
//   beta_c    = sum_{c-1} e^(max_{c-1} - max_c) / sum_c           (= 1 - alpha_c)            (additive_attention.9)
//   adjoint_c = d_out_c + beta_{c+1} adjoint_{c+1}                                           (additive_attention.10)
//   d_x_c     = alpha_c adjoint_c                                                            (additive_attention.11)
//   kappa_c   = (x_c - out_c) . adjoint_c                                                    (additive_attention.12)
//   d_logit_c = alpha_c (kappa_c + drift_c)                                                  (additive_attention.13)
//   drift_{c-1} = beta_c drift_c - alpha_c kappa_c,  drift_{C-1} = 0                         (additive_attention.14)
//
// Backward, windowed: c lies in the windows of c' = c ... c+w-1. Those in the block of c (a suffix, "down") and those
// in the next block (a prefix, "up") are each summed relative to their own top = max of -max_c':
//
//   top       = max over c' of -max_c'                                                       (additive_attention.15)
//   pull      = sum over c' of e^(-max_c' - top) / sum_c' d_out_c'                           (additive_attention.16)
//   d_x_c     = e^(logit_c + top_down) pull_down + e^(logit_c + top_up) pull_up              (additive_attention.17)
//   d_logit_c = x_c . d_x_c - the same sum (additive_attention.17) with d_out_c' . out_c' for d_out_c'
//   (additive_attention.18)
//
// When the logits come from the payload (additive_attention.1):
//
//   d_x_bcnk  += d_logit_bnc pool_nk / sqrt(K)                                               (additive_attention.19)
//   d_pool_nk += sum_bc d_logit_bnc x_bcnk / sqrt(K)                                         (additive_attention.20)
//
// The gates of the additive block multiply what was pooled with another branch:
//
//   out_bcd      = residual_bcd + dropout(pooled_bcd) gate_bcd                               (additive_attention.21)
//   d_pooled_bcd = dropout'(d_out_bcd gate_bcd)                                              (additive_attention.22)
//   d_gate_bcd   = d_out_bcd dropout(pooled_bcd)                                             (additive_attention.23)

// Payload rows x_bch are N heads of K channels side by side, h = n K + k; a stride is the distance between two
// consecutive rows (0: N K), so that x may be a slice of a wider array.
struct AdditivePoolingShape {
  Index B, C, N, K;
  Index window = 0;  // positions; 0, or at least C: global
};

// Equation (additive_attention.1) without the mask. 2 flops an element of x, which is read once.
template <class T>
struct AdditiveLogitsForward {
  Accum<T>* logit_bnc;
  const T* x_bch;
  Index x_stride = 0;
  const T* pool_nk;
  Index B, C, N, K;
};
template <class Device, class T>
void additive_logits_forward(Device&, const AdditiveLogitsForward<T>&);

// Adds to d_x_bch (where the payload's own gradient already stands) and to d_pool_nk. 4 flops an element; reads x and
// d_x, writes d_x.
template <class T>
struct AdditiveLogitsBackward {
  T* d_x_bch;  // added to
  Index d_x_stride = 0;
  Accum<T>* d_pool_nk;  // added to
  const Accum<T>* d_logit_bnc;
  const T* x_bch;
  Index x_stride = 0;
  const T* pool_nk;
  Index B, C, N, K;
};
template <class Device, class T>
void additive_logits_backward(Device&, const AdditiveLogitsBackward<T>&);

// Saved for backward: max_bnc, sum_bnc, the logits, x and out. Any finite logits will do; no finite logit overflows.
// Global: 3 flops an element, x read once (twice on a CPU with few long sequences), out written once, two exponentials
// a position and head (not a channel). Windowed: 9 flops an element whatever the window, x read twice, the second time
// from cache when a block fits there.
template <class T>
struct AdditivePoolingForward {
  T* out_bch;  // rows touch; not x
  Accum<T>* max_bnc;
  Accum<T>* sum_bnc;
  const Accum<T>* logit_bnc;
  const T* x_bch;
  Index x_stride = 0;
  const Token* mask_bc = nullptr;  // 1: real, 0: left out; null: all real
  AdditivePoolingShape shape;
};
template <class Device, class T>
void additive_pooling_forward(Device&, const AdditivePoolingForward<T>&);

// Global: 6 flops an element; reads d_out, x and out, writes d_x. Windowed: 14. Positions left out by the mask get
// gradients of exactly 0, and sum_c d_logit_bnc = 0 for every head: adding a constant to all logits changes nothing.
template <class T>
struct AdditivePoolingBackward {
  T* d_x_bch;  // overwritten, or added to where `accumulate` is set
  Index d_x_stride = 0;
  bool accumulate = false;
  Accum<T>* d_logit_bnc;  // overwritten
  const T* d_out_bch;     // rows touch
  const T* out_bch;
  const Accum<T>* max_bnc;
  const Accum<T>* sum_bnc;
  const Accum<T>* logit_bnc;
  const T* x_bch;
  Index x_stride = 0;
  const Token* mask_bc = nullptr;
  AdditivePoolingShape shape;
};
template <class Device, class T>
void additive_pooling_backward(Device&, const AdditivePoolingBackward<T>&);

// Step-by-step inference for one sequence. Shape's B and C are not read, so that only a window of 0 is global here. The
// state is an array of triples (max, sum, K numbers) for every head: one running triple, and for a window w of them
// plus a counter. It takes N (K + 2) numbers, or 1 + (w + 1) N (K + 2): constant, however long the sequence becomes.
inline Index additive_pooling_state_size(const AdditivePoolingShape& shape) {
  const Index triples = shape.N * (shape.K + 2);
  return shape.window > 0 ? 1 + (shape.window + 1) * triples : triples;
}

// The state before the first position.
template <class Device, class T>
void additive_pooling_start(Device&, Accum<T>* state, const AdditivePoolingShape&);

// One position: reads logit_n and x_h, updates the state, writes out_h. 3 N K flops for a global window, about 9 N K on
// average for any other; the step that completes a block of w positions pays for the block.
template <class Device, class T>
void additive_pooling_step(Device&, T* out_h, Accum<T>* state, const Accum<T>* logit_n, const T* x_h,
                           const AdditivePoolingShape&);

// The gates of the additive block: (additive_attention.21), residual left out when null. An element is kept or dropped
// as dropout.hpp says. out may be residual_bcd or pooled_bcd itself. Reads each operand once, writes once.
template <class T>
struct AdditiveGateForward {
  T* out_bcd;
  const T* residual_bcd = nullptr;
  const T* pooled_bcd;
  const T* gate_bcd;
  Index gate_stride = 0;  // 0: D
  Dropout dropout = {};   // element index: row-major position in pooled_bcd
  Index BC, D;
};
template <class Device, class T>
void additive_gate_forward(Device&, const AdditiveGateForward<T>&);

// The gradient of residual_bcd is d_out_bcd itself. d_pooled_bcd may be d_out_bcd.
template <class T>
struct AdditiveGateBackward {
  T* d_pooled_bcd;  // overwritten
  T* d_gate_bcd;    // overwritten
  Index d_gate_stride = 0;
  const T* d_out_bcd;
  const T* pooled_bcd;
  const T* gate_bcd;
  Index gate_stride = 0;
  Dropout dropout = {};
  Index BC, D;
};
template <class Device, class T>
void additive_gate_backward(Device&, const AdditiveGateBackward<T>&);

}  // namespace abh
