#pragma once

#include <vector>

#include "base/step_state.hpp"
#include "base/types.hpp"

namespace abh {

// Muon, an optimizer for the matrix of a linear map. The update is the running mean of the gradient, with all singular
// values brought near 1 by Newton-Schulz iterations. Jordan, Jin, Boza, You, Cesista, Newhouse, Bernstein, "Muon: an
// optimizer for hidden layers in neural networks", 2024; the size of an update: Liu et al., "Muon is scalable for LLM
// training", 2025. Derivation: docs/layers/muon.md. For a matrix with O <= I:
//
//   gradient_oi      = clip_scale d_weight_oi                                                         (muon.1)
//   first_moment_oi <- beta first_moment_oi + (1 - beta) gradient_oi                                  (muon.2)
//   ahead_oi         = beta first_moment_oi + (1 - beta) gradient_oi                                  (muon.3)
//   x_oi             = ahead_oi / (sqrt(sum_oi ahead_oi^2) + epsilon)                                 (muon.4)
//   `rounds` times:
//     gram_oo'       = sum_i x_oi x_o'i                                                               (muon.5)
//     polynomial_oo' = 3.4445 delta_oo' - 4.7750 gram_oo' + 2.0315 sum_o'' gram_oo'' gram_o''o'       (muon.6)
//     x_oi          <- sum_o' polynomial_oo' x_o'i                                                    (muon.7)
//   weight_oi       <- weight_oi - learning_rate (0.2 sqrt(max(O, I)) x_oi + weight_decay weight_oi)  (muon.8)
//
// After (muon.4), every singular value s is in [0, 1], because the sum of their squares is the sum of the squared
// elements. An iteration maps s to 3.4445 s - 4.7750 s^3 + 2.0315 s^5 and keeps the singular vectors.
//
// If O > I, the sums of (muon.5) run over o, gram_ii' and polynomial_ii' are (I, I), and (muon.7) multiplies x_oi by
// the polynomial from the right. The transposed matrix has the transposed update. There is no backward pass.
struct MuonSettings {
  double beta = 0.95;       // in [0, 1)
  double epsilon = 1e-8;    // above 0
  double weight_decay = 0;  // per unit of learning rate
  Index rounds = 5;         // >= 0, iterations of (muon.5) to (muon.7)
};

// Matrices of one shape in the arenas of a network. If T is narrower than Accum<T> (bf16), `master` contains the
// weights in full precision, as in adamw.hpp; else master is null.
template <class T>
struct MuonUpdate {
  T* weight;
  Accum<T>* master;
  Accum<T>* first_moment;  // starts as 0
  const Accum<T>* d_weight;
  const Index* offset_m;  // in host memory: start of matrix m in each arena
  Index matrices;
  Index O, I;  // >= 1; `matrices` >= 0
  MuonSettings settings;
  const StepState* state;
};

// Updates the matrices and their moments in place. Reads learning_rate and clip_scale from *state. If clip_scale is NaN
// (see global_norm.hpp), nothing changes. (muon.4) to (muon.7) are computed in Accum<T> on a CPU and in T on a GPU. In
// bf16, the update from a gradient of low rank can have a relative error of up to 1 (docs/layers/muon.md).
//
// 2 R (2 O I + R^2) flops per matrix and iteration, R = min(O, I). Also moves 20 bytes per weight in the arenas.
// Scratch: 2 (O I + R^2) numbers; on a GPU for each of up to 64 matrices, which are computed together.
template <class Device, class T>
void muon_update(Device&, const MuonUpdate<T>&);

// Updates of several shapes, in the same arenas and with the same settings. A device with joins_layers fuses the steps
// that are not matrix products.
template <class Device, class T>
void muon_updates_together(Device&, const std::vector<MuonUpdate<T>>&);
template <class Device, class T>
void muon_updates(Device& device, const std::vector<MuonUpdate<T>>& all) {
  if constexpr (Device::joins_layers) return muon_updates_together<Device, T>(device, all);
  for (const MuonUpdate<T>& u : all) muon_update<Device, T>(device, u);
}

// Coefficients of the polynomial that an iteration applies to every singular value.
inline constexpr double muon_linear = 3.4445, muon_cubic = -4.7750, muon_quintic = 2.0315;

// Root mean square of the elements of an update, for learning rate 1 and singular values 1; about that of AdamW.
inline constexpr double muon_step = 0.2;

}  // namespace abh
