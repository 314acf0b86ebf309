#pragma once

#include "base/step_state.hpp"
#include "base/types.hpp"

namespace abh {

// Length of the gradient of all weights as one vector, and the factor that cuts it to at most `clip`. Pascanu, Mikolov,
// Bengio, "On the difficulty of training recurrent neural networks", 2013. Derivation: docs/layers/global_norm.md.
//
//   gradient_norm = sqrt(sum_i gradient_i^2)                                       (global_norm.1)
//   clip_scale    = min(1, clip / gradient_norm), 1 where clip = 0                 (global_norm.2)
//
// Nothing is saved and there is no backward pass: the optimizers multiply the gradient by clip_scale when they read it.
//
// Squares and sums are in double, where no float can overflow or vanish: the norm is infinite or NaN only if a gradient
// is (in double: if one is beyond 1e150). Then clip_scale is NaN, whatever clip is, and the optimizers change nothing:
// with clip / infinity = 0 most weights would only decay, and a broken step would look like a calm one.
//
// Writes *state, reads `count` >= 0 elements of the gradient arena once; clip >= 0. 2 flops an element. The order of
// summation depends on count only.
template <class Device, class T>
void global_norm(Device&, StepState* state, const Accum<T>* gradient, double clip, Index count);

}  // namespace abh
