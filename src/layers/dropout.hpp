#pragma once

#include <cstdint>

#include "base/step_state.hpp"
#include "base/types.hpp"

namespace abh {

// Dropout: during training, each element is independently set to 0 with probability p. The other elements are
// multiplied by 1 / (1 - p), so the expectation does not change and evaluation needs no factor. Srivastava, Hinton,
// Krizhevsky, Sutskever, Salakhutdinov, "Dropout: a simple way to prevent neural networks from overfitting", 2014.
// Derivation: docs/layers/dropout.md.
//
// Element i, the row-major index in the array of the whole batch, has a 32-bit word: word_i is word i % 4 of the Philox
// block with key (seed low, seed high) and counter (i/4 low, i/4 high, step, site); see random.hpp.
//
//   factor_i = 1/(1-p) where word_i >= ceil(p 2^32), 0 elsewhere       (dropout.1)
//   out_i    = factor_i in_i {+ residual_i | given}                    (dropout.2)
//   d_in_i   = factor_i d_out_i                                        (dropout.3)
//
// The mask is a function of (seed, step, site, i). The backward pass computes it again, so nothing is saved. Every
// device drops the same elements.

// One use of dropout: probability, site (random.hpp), and the state with seed and step. 0 <= p <= 1. p = 0, as in
// evaluation, copies the input and does not read the state. p = 1 drops every element.
struct Dropout {
  double p = 0;
  std::uint32_t site = 0;
  const StepState* state = nullptr;  // in device memory; may be null if p = 0
  Index first = 0;                   // i of the first element of the array; above 0 for a part of a batch
};

// out = residual + dropout(in); null: no residual. out, in, residual: (count); out may be in or residual. About 30
// integer and 2 floating-point operations per element; 2 if p = 0. Reads and writes each array once.
template <class Device, class T>
void dropout_forward(Device&, T* out, const T* in, const T* residual, const Dropout&, Index count);

// out = a + b, element by element; b null: out = a. out may be a or b. Calls dropout_forward with p = 0.
template <class Device, class T>
void add(Device& device, T* out, const T* a, const T* b, Index count) {
  dropout_forward<Device, T>(device, out, a, b, Dropout{}, count);
}

// d_in: overwritten; may be d_out. The mask is the mask of forward. The gradient of the residual is d_out. Cost as in
// forward.
template <class Device, class T>
void dropout_backward(Device&, T* d_in, const T* d_out, const Dropout&, Index count);

}  // namespace abh
