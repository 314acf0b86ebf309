#pragma once

#include <vector>

#include "base/step_state.hpp"
#include "base/types.hpp"

namespace abh {

// Muon, for the matrix of a linear map: it moves along the running mean of its gradient, of which all singular values
// are first brought near 1. Jordan, Jin, Boza, You, Cesista, Newhouse, Bernstein, "Muon: an optimizer for hidden layers
// in neural networks", 2024; the length of a step from Liu et al., "Muon is scalable for LLM training", 2025.
// Derivation: docs/layers/muon.md. For a matrix with O <= I:
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
// (muon.4) puts every singular value s into [0, 1], as their squares add up to those of the elements; a round takes s
// to 3.4445 s - 4.7750 s^3 + 2.0315 s^5 and leaves the singular vectors as they are.
//
// With O > I the sums of (muon.5) run over o, gram_ii' and polynomial_ii' are (I, I), and the latter stands to the
// right of x_oi in (muon.7): the transposed matrix would move by the transposed step. There is no backward pass.
struct MuonSettings {
  double beta = 0.95;       // in [0, 1)
  double epsilon = 1e-8;    // above 0
  double weight_decay = 0;  // per unit of learning rate
  Index rounds = 5;         // >= 0, of (muon.5) to (muon.7)
};

// Matrices of one shape that stand in the arenas of a network. Where T is narrower than Accum<T> (bf16), `master` holds
// the weights in full precision, as for adamw; else it is null.
template <class T>
struct MuonUpdate {
  T* weight;
  Accum<T>* master;
  Accum<T>* first_moment;  // starts as 0
  const Accum<T>* d_weight;
  const Index* offset_m;  // in host memory: where matrix m begins in each arena
  Index matrices;
  Index O, I;  // >= 1; `matrices` >= 0
  MuonSettings settings;
  const StepState* state;
};

// Updates the matrices and their moments in place; d_weight is only read. Of *state it reads learning_rate and
// clip_scale; where that is NaN (see global_norm.hpp) nothing changes. (muon.4) to (muon.7) are computed in Accum<T>
// on a CPU, in T on a GPU: there, in bf16, a step on a gradient of low rank is off by up to its own length
// (docs/layers/muon.md).
//
// 2 R (2 O I + R^2) flops a matrix and round, R the smaller of O and I, and 20 bytes a weight beside them, in the
// arenas alone; scratch memory for 2 (O I + R^2) numbers, on a GPU for each of up to 32 matrices, which are computed
// together.
template <class Device, class T>
void muon_update(Device&, const MuonUpdate<T>&);

// Updates of several shapes, of the same arenas with the same settings: what is no product together where a device
// joins layers.
template <class Device, class T>
void muon_updates_together(Device&, const std::vector<MuonUpdate<T>>&);
template <class Device, class T>
void muon_updates(Device& device, const std::vector<MuonUpdate<T>>& all) {
  if constexpr (Device::joins_layers) return muon_updates_together<Device, T>(device, all);
  for (const MuonUpdate<T>& u : all) muon_update<Device, T>(device, u);
}

// The polynomial that a round applies to every singular value.
inline constexpr double muon_linear = 3.4445, muon_cubic = -4.7750, muon_quintic = 2.0315;

// The root mean square of a step's elements, for a learning rate of 1, were all singular values 1: about AdamW's.
inline constexpr double muon_step = 0.2;

}  // namespace abh
