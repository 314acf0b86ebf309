#pragma once

#include <cmath>
#include <vector>

#include "base/step_state.hpp"
#include "base/types.hpp"

namespace abh {

// AdamW: every weight moves along the running mean of its gradient, divided by the root of the running mean of its
// square; weight decay acts on the weight itself. Kingma, Ba, "Adam: a method for stochastic optimization", 2015;
// Loshchilov, Hutter, "Decoupled weight decay regularization", 2019. Derivation: docs/layers/adamw.md. For every weight
// i of a tensor, and step counted from 0:
//
//   gradient_i       = clip_scale d_weight_i                                                                  (adamw.1)
//   first_moment_i  <- beta1 first_moment_i + (1 - beta1) gradient_i                                          (adamw.2)
//   second_moment_i <- beta2 second_moment_i + (1 - beta2) gradient_i^2                                       (adamw.3)
//   mean_i           = first_moment_i / (1 - beta1^(step + 1))                                                (adamw.4)
//   square_i         = second_moment_i / (1 - beta2^(step + 1))                                               (adamw.5)
//   weight_i        <- weight_i - learning_rate (mean_i / (sqrt(square_i) + epsilon) + weight_decay weight_i) (adamw.6)
//
// The moments start at 0, which still is the share beta^(step + 1) of them; (adamw.4) and (adamw.5) divide by the rest.
// There is no backward pass.
struct AdamwSettings {
  double beta1 = 0.9;       // in [0, 1)
  double beta2 = 0.99;      // in [0, 1)
  double epsilon = 1e-8;    // above 0
  double weight_decay = 0;  // of this tensor; acts on the weight, per unit of learning rate
  double rate = 1;          // of this tensor: what the learning rate is multiplied by
};

// The arrays of `count` >= 0 weights. Where T is narrower than Accum<T> (bf16), `master` holds the weights in full
// precision: it is what (adamw.6) updates, and weight gets the rounded copy. A step is often smaller than the distance
// of two neighbouring bf16 and would be rounded away. Where T is Accum<T>, master is null and weight itself is updated.
template <class T>
struct AdamwUpdate {
  T* weight;
  Accum<T>* master = nullptr;
  Accum<T>* first_moment;   // 0 before the first step
  Accum<T>* second_moment;  // 0 before the first step
  const Accum<T>* d_weight;
  AdamwSettings settings = {};
  const StepState* state;
  Index count;
};

// Updates the weights and their moments in place.
//
// It reads from *state learning_rate, clip_scale and the corrections, which set_adamw_corrections must have set for
// this step. Where clip_scale is NaN (a gradient that is not finite, see global_norm.hpp) the step is broken and
// nothing changes, neither weights nor moments: the last good ones are still there to be saved.
//
// About 15 flops a weight, with a root and a division; in float, reads 16 bytes a weight and writes 12, in bf16 16 and
// 14.
template <class Device, class T>
void adamw_update(Device&, const AdamwUpdate<T>&);

// Several of them, which have no weight in common and read one state: together where a device joins layers.
template <class Device, class T>
void adamw_updates_together(Device&, const std::vector<AdamwUpdate<T>>&);
template <class Device, class T>
void adamw_updates(Device& device, const std::vector<AdamwUpdate<T>>& all) {
  if constexpr (Device::joins_layers) return adamw_updates_together<Device, T>(device, all);
  for (const AdamwUpdate<T>& a : all) adamw_update<Device, T>(device, a);
}

// The reciprocals of the divisors of (adamw.4) and (adamw.5) for state.step: once a step, so that no weight needs a
// power or these two divisions. For the host, in double: 1 - beta^n in float would lose digits.
inline void set_adamw_corrections(StepState& state, const AdamwSettings& settings) {
  const double steps = static_cast<double>(state.step) + 1;
  state.first_moment_correction = 1 / (1 - std::pow(settings.beta1, steps));
  state.second_moment_correction = 1 / (1 - std::pow(settings.beta2, steps));
}

}  // namespace abh
