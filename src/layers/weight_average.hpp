#pragma once

#include <algorithm>

#include "base/step_state.hpp"
#include "base/types.hpp"

namespace abh {

// Running average of each weight: the mean over all steps so far; from step N on, an exponential moving average. The
// averaged weights usually have a lower loss than the weights of the last step. Polyak, Juditsky, "Acceleration of
// stochastic approximation by averaging", 1992. Derivation: docs/layers/weight_average.md. After every step, counted
// from 0:
//
//   average_share = 1 / min(step + 1, N)                                           (weight_average.1)
//   average_i    <- average_i + average_share (weight_i - average_i)               (weight_average.2)
//
// If the share is 1 (first step, or N = 1), the average is a bitwise copy of the weight. Therefore the initial value of
// the average is not used. There is no backward pass.
//
// `count` >= 0 weights in full precision: for bf16, the master weights. Reads clip_scale and average_share from *state;
// set_average_share must have set average_share for this step. If clip_scale is NaN (global_norm.hpp), nothing changes.
//
// 3 flops per weight. Reads 8 bytes per weight and writes 4.
template <class Device, class T>
void weight_average_update(Device&, Accum<T>* average, const Accum<T>* weight, const StepState* state, Index count);

// Sets (weight_average.1) for state.step and N >= 1. Called once per step, on the host, in double.
inline void set_average_share(StepState& state, Index N) {
  state.average_share = 1 / static_cast<double>(std::min(Index{state.step} + 1, N));
}

}  // namespace abh
