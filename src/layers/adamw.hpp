#pragma once

#include <cmath>
#include <vector>

#include "base/step_state.hpp"
#include "base/types.hpp"

namespace abh {

// AdamW: the update of a weight is the running mean of its gradient, divided by the root of the running mean of the
// squared gradient. Weight decay acts on the weight directly. Kingma, Ba, "Adam: a method for stochastic optimization",
// 2015; Loshchilov, Hutter, "Decoupled weight decay regularization", 2019. Derivation: docs/layers/adamw.md. For every
// weight i of a tensor, with step counted from 0:
//
//   gradient_i       = clip_scale d_weight_i                                                                  (adamw.1)
//   first_moment_i  <- beta1 first_moment_i + (1 - beta1) gradient_i                                          (adamw.2)
//   second_moment_i <- beta2 second_moment_i + (1 - beta2) gradient_i^2                                       (adamw.3)
//   mean_i           = first_moment_i / (1 - beta1^(step + 1))                                                (adamw.4)
//   square_i         = second_moment_i / (1 - beta2^(step + 1))                                               (adamw.5)
//   weight_i        <- weight_i - learning_rate (mean_i / (sqrt(square_i) + epsilon) + weight_decay weight_i) (adamw.6)
//
// The moments start at 0 and are too small by the factor 1 - beta^(step + 1). (adamw.4) and (adamw.5) divide by this
// factor. There is no backward pass.
struct AdamwSettings {
  double beta1 = 0.9;       // in [0, 1)
  double beta2 = 0.99;      // in [0, 1)
  double epsilon = 1e-8;    // above 0
  double weight_decay = 0;  // of this tensor, per unit of learning rate
  double rate = 1;          // of this tensor: factor of the learning rate
};

// Arrays of `count` >= 0 weights. If T is narrower than Accum<T> (bf16), (adamw.6) updates `master`, the weights in
// full precision, and `weight` receives the rounded copy. An update of a bf16 weight is often smaller than the distance
// to the next bf16 number and would be rounded away. If T is Accum<T>, master is null, and (adamw.6) updates `weight`.
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
// Reads learning_rate, clip_scale and the corrections from *state; set_adamw_corrections must have set them for this
// step. If clip_scale is NaN (the gradient is not finite, see global_norm.hpp), weights and moments do not change.
//
// About 15 flops per weight, with a root and a division. In float: reads 16 bytes per weight and writes 12; in bf16:
// reads 16 and writes 14.
template <class Device, class T>
void adamw_update(Device&, const AdamwUpdate<T>&);

// Updates of several tensors without common weights, with the same state. A device with joins_layers fuses them.
template <class Device, class T>
void adamw_updates_together(Device&, const std::vector<AdamwUpdate<T>>&);
template <class Device, class T>
void adamw_updates(Device& device, const std::vector<AdamwUpdate<T>>& all) {
  if constexpr (Device::joins_layers) return adamw_updates_together<Device, T>(device, all);
  for (const AdamwUpdate<T>& a : all) adamw_update<Device, T>(device, a);
}

// Sets the reciprocals of the divisors of (adamw.4) and (adamw.5) for state.step. Called once per step, on the host, in
// double: in float, 1 - beta^n would be inaccurate.
inline void set_adamw_corrections(StepState& state, const AdamwSettings& settings) {
  const double steps = static_cast<double>(state.step) + 1;
  state.first_moment_correction = 1 / (1 - std::pow(settings.beta1, steps));
  state.second_moment_correction = 1 / (1 - std::pow(settings.beta2, steps));
}

}  // namespace abh
