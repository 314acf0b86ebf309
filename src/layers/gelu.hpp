#pragma once

#include "base/types.hpp"

namespace abh {

// Gaussian error linear unit, element by element: the input x times the probability that a standard normal variable is
// smaller than x. Hendrycks, Gimpel, "Gaussian error linear units (GELUs)", 2016. Derivation: docs/layers/gelu.md.
//
// Form `erf`, with Phi(x) = 1/2 (1 + erf(x / sqrt 2)) and its derivative phi(x) = exp(-x^2 / 2) / sqrt(2 pi):
//
//   out_i  = in_i Phi(in_i)                                                        (gelu.1)
//   d_in_i = d_out_i (Phi(in_i) + in_i phi(in_i))                                  (gelu.3)
//
// Form `tanh`, with tau_i = tanh(kappa (in_i + alpha in_i^3)), kappa = sqrt(2 / pi), alpha = 0.044715:
//
//   out_i  = 1/2 in_i (1 + tau_i)                                                  (gelu.2)
//   d_in_i = d_out_i (1/2 (1 + tau_i) + 1/2 in_i (1 - tau_i^2) kappa (1 + 3 alpha in_i^2))   (gelu.4)
//
// The forms differ by at most 4.73e-4, near |in| = 2.7. Networks use `erf`; --activation gelu_tanh selects `tanh`, the
// form of GPT-2. Infinite inputs have the limits as results: -infinity gives 0 with gradient 0, +infinity gives
// +infinity with gradient d_out. NaN gives NaN.
enum class GeluForm { erf, tanh };

// in, out: `count` >= 0 elements of any shape. out may be `in` only if no backward pass follows, because backward reads
// the input. About 38 flops per element (erf) or 30 (tanh). Reads one array and writes one.
template <class Device, class T>
void gelu_forward(Device&, T* out, const T* in, Index count, GeluForm form);

// d_in: overwritten; may be d_out. About 38 flops per element (erf) or 40 (tanh). Reads two arrays and writes one.
template <class Device, class T>
void gelu_backward(Device&, T* d_in, const T* d_out, const T* in, Index count, GeluForm form);

}  // namespace abh
