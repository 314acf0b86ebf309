#pragma once

#include <algorithm>

#include "base/step_state.hpp"
#include "base/types.hpp"

namespace abh {

// A running average of the weights, one of its own for every weight: the mean of all steps so far, and from step N on
// an exponential one that forgets. A trained model is better there than at the last of its noisy steps. Polyak,
// Juditsky, "Acceleration of stochastic approximation by averaging", 1992. Derivation: docs/layers/weight_average.md.
// After every step, counted from 0:
//
//   average_share = 1 / min(step + 1, N)                                           (weight_average.1)
//   average_i    <- average_i + average_share (weight_i - average_i)               (weight_average.2)
//
// Where the share is 1, after the first step or where N = 1, the average has the bits of the weight: a sum would be
// rounded. So it does not matter what the average was before. There is no backward pass.
//
// `count` >= 0 weights, in full precision: the master copy of weights that are narrower. Of *state it reads clip_scale
// and average_share, which set_average_share must have set for this step. Where clip_scale is NaN (global_norm.hpp) the
// step is broken and nothing changes.
//
// 3 flops a weight; reads 8 bytes a weight and writes 4.
template <class Device, class T>
void weight_average_update(Device&, Accum<T>* average, const Accum<T>* weight, const StepState* state, Index count);

// (weight_average.1) for state.step and N >= 1. For the host, once a step, in double.
inline void set_average_share(StepState& state, Index N) {
  state.average_share = 1 / static_cast<double>(std::min(Index{state.step} + 1, N));
}

}  // namespace abh
