#pragma once

#include "base/types.hpp"

namespace abh {

// Pooling: every head keeps a running weighted average of its payload, the weight of a position being e to the power of
// a scalar logit (pooling_logits.hpp). It is the heart of additive attention: Wu, Wu, Qi, Huang, Xie, "Fastformer:
// additive attention can be all you need", 2021, made causal. Derivations: docs/layers/pooling.md. One head of one
// sequence is meant, b and n are left out: logit_c is a number, x_c and out_c are vectors of K channels.
//
//   out_c = (sum over c' of e^logit_c' x_c') / (sum over c' of e^logit_c')                   (pooling.1) definition
//
// over the positions c' <= c, of which a window keeps the last w. A position that sees nothing yields 0. The sums are
// never formed: e^logit overflows. The state of a head is (max, sum, out), its start (-infinity, 0, 0), its step
//
//   max_c   = max(max_{c-1}, logit_c)                                                        (pooling.2)
//   sum_c   = sum_{c-1} e^(max_{c-1} - max_c) + e^(logit_c - max_c)                          (pooling.3)
//   alpha_c = e^(logit_c - max_c) / sum_c                                                    (pooling.4)
//   out_c   = out_{c-1} + alpha_c (x_c - out_{c-1})                                          (pooling.5)
//
// A window w < C cuts the positions into blocks of w. The same recurrence, started anew in every block, gives prefixes
// (from the start of its block to c); run backwards, it gives suffixes (from c to the end of its block). The window of
// c is the suffix from c-w+1 and the prefix to c, merged; only weights > 0 are added, nothing is ever subtracted:
//
//   max_c   = max(max_suffix, max_prefix),
//   sum_c   = sum_suffix e^(max_suffix - max_c) + sum_prefix e^(max_prefix - max_c)          (pooling.6)
//   gamma_c = sum_suffix e^(max_suffix - max_c) / sum_c                                      (pooling.7)
//   out_c   = prefix_c + gamma_c (suffix_{c-w+1} - prefix_c)                                 (pooling.8)
//
// Backward, global. adjoint_c is the gradient of the state out_c, drift_c that of max_c + log sum_c:
//
//   beta_c    = sum_{c-1} e^(max_{c-1} - max_c) / sum_c           (= 1 - alpha_c)            (pooling.9)
//   adjoint_c = d_out_c + beta_{c+1} adjoint_{c+1}                                           (pooling.10)
//   d_x_c     = alpha_c adjoint_c                                                            (pooling.11)
//   kappa_c   = (x_c - out_c) . adjoint_c                                                    (pooling.12)
//   d_logit_c = alpha_c (kappa_c + drift_c)                                                  (pooling.13)
//   drift_{c-1} = beta_c drift_c - alpha_c kappa_c,  drift_{C-1} = 0                         (pooling.14)
//
// Backward, windowed: c lies in the windows of c' = c ... min(c+w-1, C-1). Those in the block of c (a suffix, "down")
// and those in the next block (a prefix, "up") are each summed relative to their own level:
//
//   level     = max over c' of -max_c'                                                       (pooling.15)
//   pull      = sum over c' of e^(-max_c' - level) / sum_c' d_out_c',
//   pull_out  = sum over c' of e^(-max_c' - level) / sum_c' (d_out_c' . out_c')              (pooling.16)
//   d_x_c     = e^(logit_c + level_down) pull_down + e^(logit_c + level_up) pull_up          (pooling.17)
//   d_logit_c = x_c . d_x_c - e^(logit_c + level_down) pull_out_down
//               - e^(logit_c + level_up) pull_out_up                                         (pooling.18)
//
// Decay: with a slope >= 0 a head, a logit weighs less by it at every position that follows, masked or not.
//
//   out_c = (sum over c' of e^(logit_c' - slope (c - c')) x_c') / (the same sum without x)   (pooling.19) definition
//
// The maximum is kept as a pair, the largest logit as it was and the positions since: a number that is lowered at every
// position would be rounded at every position, and the weights of all that was seen with it. aged is what the maximum
// before has come down to:
//
//   aged_c        = top_{c-1} - slope (age_{c-1} + 1)                                        (pooling.20)
//   (top, age)_c  = (logit_c, 0) where logit_c >= aged_c, else (top_{c-1}, age_{c-1} + 1),
//   max_c         = top_c - slope age_c                                                      (pooling.21)
//
// and aged_c stands for max_{c-1} in (pooling.3) and (pooling.9); where the pair stays, the factor e^(aged_c - max_c)
// is exactly 1. Backward has max_{c-1} but no pair:
//
//   aged_c = max_c where logit_c < max_c, else max_{c-1} - slope                             (pooling.22)
//
// Windows: a prefix is a state at c. A suffix is a state at the end of its block, to which it goes back, and enters the
// window of c aged by the positions since. Backward the same holds in reversed time, where -max is the logit:
//
//   in a suffix  logit_c - slope (end - c)  for logit_c,
//   in a merge   max_suffix - slope (c - end)  for max_suffix                                (pooling.23)
//   level = max over c' of -max_c' - slope (c' - c), and so in the powers of (pooling.16)    (pooling.24)
//
// As long as one maximum stays, all of these are equal but for rounding; any number at most 1/2 below level will do
// for it, so that fast code keeps one of them instead of following their last digits.
//
// Not causal: every position sees every position, and all rows are one average. Neither a window nor a slope then.
//
//   out       = sum over c of alpha_c x_c,  alpha_c = e^(logit_c - max) / sum                (pooling.25)
//   d_x_c     = alpha_c (sum over c' of d_out_c')                                            (pooling.26)
//   d_logit_c = alpha_c ((x_c - out) . (sum over c' of d_out_c') + sum over c' of d_lse_c')  (pooling.27)
//
// A gradient d_lse_c of lse_c = max_c + log sum_c may come in beside d_out: causal
//
//   drift_c  += d_lse_c                                                                      (pooling.28)
//   pull_out  has d_out_c' . out_c' - d_lse_c'  for d_out_c' . out_c'                        (pooling.29)
//
// A sequence in chunks (docs/chunks.md). What lies behind a chunk stands in P positions before it: with a window its
// last positions as they were, else a single one, whose payload is the average so far and whose logit is zeta. It acts
// on all that follow as the positions do that it stands for, and it is its gradient that goes back to them.
//
//   zeta = max_{C-1} + log sum_{C-1}                                                         (pooling.30)

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

// What both passes read.
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
struct PoolingRest {
  Element* weight_n = nullptr;
  Element* payload_h = nullptr;
};

// Saved for backward: max_bnc, sum_bnc, the logits, x and out. Any finite logits will do; no finite logit overflows.
// Global: 3 flops an element, x read once (twice on a CPU with few long sequences), out written once, two exponentials
// a position and head (not a channel). Windowed: 9 flops an element whatever the window, x read twice, the second time
// from cache when a block fits there. Not causal: 2 flops, x read once. max_bnc and sum_bnc hold every position's
// logarithm of the sum of weights as max + log sum; not causal, all positions of a head hold the same.
template <class T>
struct PoolingForward {
  T* out_bch;  // rows touch; not x
  Accum<T>* max_bnc;
  Accum<T>* sum_bnc;
  PoolingInputs<T> in;
  PoolingRest<const Accum<T>> first{};
  PoolingRest<Accum<T>> last{};
};
template <class Device, class T>
void pooling_forward(Device&, const PoolingForward<T>&);

// Global: 6 flops an element; reads d_out, x and out, writes d_x. Windowed: 14. Positions left out by the mask get
// gradients of exactly 0. Without d_lse sum_c d_logit_bnc = 0 for every head: adding a constant to all logits changes
// nothing.
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

// (pooling.1) and (pooling.19) themselves and their gradients, as sums over every window: in plain/ alone, where the
// recurrences have what they are compared with. Neither max_bnc nor sum_bnc is written or read, and backward does not
// read out_bch.
template <class Device, class T>
void pooling_definition_forward(Device&, const PoolingForward<T>&);
template <class Device, class T>
void pooling_definition_backward(Device&, const PoolingBackward<T>&);

// The two kinds that are not the running average over all positions so far: in plain/ alone functions of their own,
// called by the two above.
template <class Device, class T>
void pooling_windowed_forward(Device&, const PoolingForward<T>&);
template <class Device, class T>
void pooling_windowed_backward(Device&, const PoolingBackward<T>&);
template <class Device, class T>
void pooling_of_all_forward(Device&, const PoolingForward<T>&);
template <class Device, class T>
void pooling_of_all_backward(Device&, const PoolingBackward<T>&);

// For whoever looks: what position c gives to position s, the weights of these sums, (B, N, C, C); 0 where c does not
// see s. In plain/ alone, from what forward read, x excepted.
template <class Device, class T>
void pooling_weights(Device&, T* weight_bncs, const PoolingInputs<T>&);

// (pooling.30) of C positions of one sequence, from what pooling_forward saved. Where the last position sees nothing
// zeta is so low that it weighs nothing beside any logit. rest_n: what rounding left of the sums, and then of zeta;
// null: nothing is known of it.
inline constexpr double pooling_nothing = -1e30;
template <class Device, class T>
void pooling_zeta(Device&, Accum<T>* zeta_n, const Accum<T>* max_nc, const Accum<T>* sum_nc, Index C, Index N,
                  Accum<T>* rest_n = nullptr);

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

// What rounding left of the logit and payload of the one position that a global state has seen, if it stands for many:
// into the places of a state for that. The sum of one position is 1.
template <class Device, class T>
void pooling_put_rest(Device& device, Accum<T>* state, const PoolingRest<const Accum<T>>& rest,
                      const PoolingShape& shape, bool decays = false) {
  const Index size = pooling_state_size({.B = 1, .C = 1, .N = 1, .K = shape.K, .payloads = shape.payloads}, decays);
  for (Index n = 0; n < shape.N; ++n) {
    Accum<T>* rests = state + n * size + 2 + shape.payloads * shape.K;
    device.copy(rests, rest.weight_n + n, 1);
    for (Index p = 0; p < shape.payloads; ++p) {
      device.copy(rests + 1 + p * shape.K, rest.payload_h + (p * shape.N + n) * shape.K, shape.K);
    }
  }
}

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
