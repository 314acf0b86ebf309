#pragma once

#include "base/bf16.hpp"
#include "base/types.hpp"

namespace abh {

// Learned attention span: every head learns how many previous positions it attends to, by a soft mask. Sukhbaatar,
// Grave, Bojanowski, Joulin, "Adaptive attention span in transformers", 2019. Derivation:
// extras/adaptive_span/README.md.
//
// Attention weights at distance p are multiplied by a mask before they are normalised. The mask is 1 up to the span and
// then falls linearly to 0 over `ramp` positions. The logarithm of the mask is added to the score; distances with mask
// 0 are outside the window.
//
//   mask_np = clamp((ramp + span_n - p) / ramp, 0, 1)                                 (adaptive_span.1)
//   distance_bias_np = log mask_np {+ base_np}   where the mask is not 0                (adaptive_span.2)
//   reach_n = the number of distances where it is not                                 (adaptive_span.3)
//
// Backward pass; the gradient of distances where the mask is 0 or 1 is 0:
//
//   d_span_n += sum_p d_distance_bias_np / (ramp mask_np)   where 0 < mask_np < 1       (adaptive_span.4)
//
// Optional penalty in the loss of every position: the mean span of the heads times `penalty`.
//
//   d_span_n += penalty / N                                                           (adaptive_span.5)
//
// After an optimizer step the spans are clamped to their range:
//
//   span_n <- clamp(span_n, 0, largest)                                               (adaptive_span.6)

// ramp > 0; ramp and spans in positions. N >= 1; distances >= 1.
template <class T>
struct AdaptiveSpan {
  const T* span_n;
  double ramp;
  const Accum<T>* base_np = nullptr;  // an additional bias, such as that of ALiBi; null: none
  Index N, distances;

  // (adaptive_span.1) before the clamp. It decreases with p.
  ABH_HOST_DEVICE Accum<T> unclamped(Index n, Index p) const {
    const Accum<T> R = Accum<T>(ramp);
    return (R + Accum<T>(span_n[n]) - Accum<T>(static_cast<double>(p))) / R;
  }
};

// The bias of distances outside the window is 0. first_n: first distance with a mask below 1. Backward needs the
// gradients from first_n to the window: at most ceil(ramp) of them. O(N distances).
template <class T>
struct AdaptiveSpanForward {
  Accum<T>* distance_bias_np;
  Index* reach_n;
  Index* first_n;
  AdaptiveSpan<T> in;
};
template <class Device, class T>
void adaptive_span_forward(Device&, const AdaptiveSpanForward<T>&);

// d_span_n is accumulated. Reads d_distance_bias_np at the distances that forward determined. O(N ramp).
template <class T>
struct AdaptiveSpanBackward {
  Accum<T>* d_span_n;
  const Accum<T>* d_distance_bias_np;
  double penalty = 0;
  AdaptiveSpan<T> in;
};
template <class Device, class T>
void adaptive_span_backward(Device&, const AdaptiveSpanBackward<T>&);

// (adaptive_span.6), in place; master as in layers/adamw.hpp.
template <class Device, class T>
void adaptive_span_clamp(Device&, T* span_n, Accum<T>* master_n, double largest, Index N);

}  // namespace abh
