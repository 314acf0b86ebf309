#pragma once

#include "base/step_state.hpp"
#include "base/types.hpp"

namespace abh {

// Global norm of the gradient of all weights, and the factor that clips it to `clip`. Pascanu, Mikolov, Bengio, "On the
// difficulty of training recurrent neural networks", 2013. Derivation: docs/layers/global_norm.md.
//
//   gradient_norm = sqrt(sum_i gradient_i^2)                                       (global_norm.1)
//   clip_scale    = min(1, clip / gradient_norm), 1 where clip = 0                 (global_norm.2)
//
// There is no backward pass. The optimizers multiply the gradient by clip_scale when they read it.
//
// Squares and sums are in double, so no float overflows or underflows. The norm is infinite or NaN only if an element
// is (in double: or if an element is above 1e150). Then clip_scale is NaN for any clip, and the optimizers change
// nothing. The factor clip / infinity = 0 would instead apply only the weight decay, and hide the fault.
//
// Writes *state. Reads the `count` >= 0 elements of the gradient arena once; clip >= 0. 2 flops per element. The order
// of summation depends only on count.
template <class Device, class T>
void global_norm(Device&, StepState* state, const Accum<T>* gradient, double clip, Index count);

}  // namespace abh
