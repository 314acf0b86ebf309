#pragma once

#include "base/types.hpp"

namespace abh {

// Gaussian error linear unit, element by element: the input times the probability that a standard normal number is
// smaller. Hendrycks, Gimpel, "Gaussian error linear units (GELUs)", 2016. Derivation: docs/layers/gelu.md.
//
// With Phi(x) = 1/2 (1 + erf(x / sqrt 2)) and its derivative phi(x) = exp(-x^2 / 2) / sqrt(2 pi), form `erf`:
//
//   out_i  = in_i Phi(in_i)                                                        (gelu.1)
//   d_in_i = d_out_i (Phi(in_i) + in_i phi(in_i))                                  (gelu.3)
//
// With tau_i = tanh(kappa (in_i + alpha in_i^3)), kappa = sqrt(2 / pi), alpha = 0.044715, form `tanh`:
//
//   out_i  = 1/2 in_i (1 + tau_i)                                                  (gelu.2)
//   d_in_i = d_out_i (1/2 (1 + tau_i) + 1/2 in_i (1 - tau_i^2) kappa (1 + 3 alpha in_i^2))   (gelu.4)
//
// The forms differ by up to 4.73e-4 (near |in| = 2.7). The models use `erf`, with --activation gelu_tanh `tanh`, which
// is GPT-2's. Infinite inputs are limits: minus infinity gives 0 and gradient 0, plus infinity itself and gradient
// d_out. NaN stays NaN.
enum class GeluForm { erf, tanh };

// in, out: `count` >= 0 elements of any shape; out may be `in` itself only when no backward pass follows. Nothing but
// the input is needed by the backward pass. About 38 flops an element (erf), 30 (tanh); reads and writes 1 array each.
template <class Device, class T>
void gelu_forward(Device&, T* out, const T* in, Index count, GeluForm form);

// d_in is overwritten and may be d_out itself. About 38 flops an element (erf), 40 (tanh); reads 2 arrays, writes 1.
template <class Device, class T>
void gelu_backward(Device&, T* d_in, const T* d_out, const T* in, Index count, GeluForm form);

}  // namespace abh
