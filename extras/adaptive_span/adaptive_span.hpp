#pragma once

#include "base/bf16.hpp"
#include "base/types.hpp"

namespace abh {

// How far every head of an attention looks back, learned: a soft border. Sukhbaatar, Grave, Bojanowski, Joulin,
// "Adaptive attention span in transformers", 2019. Derivation: extras/adaptive_span/README.md.
//
// At distance p a weight of attention is multiplied by a mask, before the weights of a query are divided by their sum:
// 1 up to the span, then falling to 0 over a ramp of so many positions. The logarithm of the mask joins the score, and
// what has none is out of reach.
//
//   mask_np = clamp((ramp + span_n - p) / ramp, 0, 1)                                 (adaptive_span.1)
//   distance_bias_np = log mask_np {+ base_np}   where the mask is not 0                (adaptive_span.2)
//   reach_n = the number of distances where it is not                                 (adaptive_span.3)
//
// Backward; what is said of the span by a distance inside it or out of reach is 0:
//
//   d_span_n += sum_p d_distance_bias_np / (ramp mask_np)   where 0 < mask_np < 1       (adaptive_span.4)
//
// A loss may have a share for every position that heads may look at, the mean of their spans times a penalty:
//
//   d_span_n += penalty / N                                                           (adaptive_span.5)
//
// After a step of the optimizer a span stands where it can stand:
//
//   span_n <- clamp(span_n, 0, largest)                                               (adaptive_span.6)

// ramp > 0, in positions, as spans are. N >= 1; distances >= 1.
template <class T>
struct AdaptiveSpan {
  const T* span_n;
  double ramp;
  const Accum<T>* base_np = nullptr;  // a bias that is there anyway, alibi's; null: none
  Index N, distances;

  // (adaptive_span.1), which its clamps have not met yet. It falls with p.
  ABH_HOST_DEVICE Accum<T> unclamped(Index n, Index p) const {
    const Accum<T> R = Accum<T>(ramp);
    return (R + Accum<T>(span_n[n]) - Accum<T>(static_cast<double>(p))) / R;
  }
};

// The bias of a distance out of reach is 0. first_n: the first distance whose mask is below 1. From there up to the
// reach, backward needs gradients: ceil(ramp) of them at most. O(N distances).
template <class T>
struct AdaptiveSpanForward {
  Accum<T>* distance_bias_np;
  Index* reach_n;
  Index* first_n;
  AdaptiveSpan<T> in;
};
template <class Device, class T>
void adaptive_span_forward(Device&, const AdaptiveSpanForward<T>&);

// d_span_n is added to. Of d_distance_bias_np it reads the distances that forward said. O(N ramp).
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
