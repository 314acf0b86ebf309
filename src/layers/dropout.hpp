#pragma once

#include <cstdint>

#include "base/step_state.hpp"
#include "base/types.hpp"

namespace abh {

// Dropout: during training every element is set to 0 with probability p, independently of all others, and what is kept
// is scaled by 1 / (1 - p), so that the expectation stays what it was and evaluation needs no rescaling. Srivastava,
// Hinton, Krizhevsky, Sutskever, Salakhutdinov, "Dropout: a simple way to prevent neural networks from overfitting",
// 2014. Derivation: docs/layers/dropout.md.
//
// Element i (its row-major position in the array of the whole batch) has one 32-bit word of its own, word_i = word i %
// 4 of the Philox block with key (seed low, seed high) and counter (i/4 low, i/4 high, step, site); see random.hpp.
//
//   factor_i = 1/(1-p) where word_i >= ceil(p 2^32), 0 elsewhere       (dropout.1)
//   out_i    = factor_i in_i {+ residual_i | given}                    (dropout.2)
//   d_in_i   = factor_i d_out_i                                        (dropout.3)
//
// The mask is a function of (seed, step, site, i), so the backward pass draws it again: nothing is saved, and every
// device drops the same elements.

// One use of dropout: its probability, its site (random.hpp) and where the seed and the step are read from. 0 <= p
// <= 1. p = 0, as in evaluation, changes nothing and reads no state; p = 1 drops everything.
struct Dropout {
  double p = 0;
  std::uint32_t site = 0;
  const StepState* state = nullptr;  // in device memory; may be null when p = 0
  Index first = 0;                   // i of the array's first element: where it is a part of the batch, not 0
};

// out = residual + dropout(in), residual left out when null. out, in, residual: (count); out may be in or residual.
// About 30 integer and 2 floating-point operations an element, 2 without a mask to draw; reads and writes each array
// once.
template <class Device, class T>
void dropout_forward(Device&, T* out, const T* in, const T* residual, const Dropout&, Index count);

// out = a + b, element by element; b is left out when null. out may be a or b. The layer that adds is this one, with
// nothing to drop.
template <class Device, class T>
void add(Device& device, T* out, const T* a, const T* b, Index count) {
  dropout_forward<Device, T>(device, out, a, b, Dropout{}, count);
}

// d_in: overwritten, may be d_out. The mask is that of forward. The gradient of the residual is d_out itself, which the
// caller has. Costs what the forward pass costs.
template <class Device, class T>
void dropout_backward(Device&, T* d_in, const T* d_out, const Dropout&, Index count);

}  // namespace abh
