#pragma once

#include "base/types.hpp"

namespace abh {

// Cross entropy between the softmax of the logits and the target token, with label smoothing: the loss of the language
// model. Label smoothing: Szegedy, Vanhoucke, Ioffe, Shlens, Wojna, "Rethinking the Inception architecture for computer
// vision", 2016. Derivation: docs/layers/cross_entropy.md. With t = targets_bc:
//
//   q_bcv        = (1 - label_smoothing) delta_vt + label_smoothing / V                        (cross_entropy.1)
//   lse_bc       = max_bc + log sum_v exp(logits_bcv - max_bc),  max_bc = max_v logits_bcv     (cross_entropy.2)
//   loss_bc      = lse_bc - sum_v q_bcv logits_bcv                                             (cross_entropy.3)
//   loss         = 1/count sum_bc loss_bc                                                      (cross_entropy.4)
//
// Backward:
//
//   d_logits_bcv = 1/count (exp(logits_bcv - lse_bc) - q_bcv)                                  (cross_entropy.5)
//
// Prediction, if best_bc is not null:
//
//   best_bc      = the first v with logits_bcv = max_bc                                        (cross_entropy.6)
//
// Both terms of (cross_entropy.3) use logits minus max_bc. The result is the same, because q sums to 1, and it stays
// accurate for large logits. A row with target ignored_target has loss 0 and gradient 0; count is the number of other
// rows. If a logit of a counted row is NaN or +infinity, its loss is NaN.

// logits_bcv: (BC, V), and its gradient, rows `stride` numbers apart, 0: contiguous; targets_bc: (BC), each in [0, V)
// or ignored_target; not checked here. BC >= 0, V >= 1, label_smoothing in [0, 1].
template <class T>
struct CrossEntropyInputs {
  const T* logits_bcv;
  const Token* targets_bc;
  double label_smoothing = 0;
  Index BC, V;
  Index stride = 0;
};

// The loss is in nats. About 20 flops per logit, mostly for the exponential. Reads each row once from memory.
template <class T>
struct CrossEntropyForward {
  Accum<T>* loss;            // one number: mean over the counted rows; 0 if there are none
  Accum<T>* loss_bc;         // (BC)
  Accum<T>* lse_bc;          // (BC), saved for backward; 0 for ignored rows
  Index* count;              // one number, saved for backward
  Token* best_bc = nullptr;  // (BC), ignored_target for ignored rows; null: no predictions
  CrossEntropyInputs<T> in;
};
template <class Device, class T>
void cross_entropy_forward(Device&, const CrossEntropyForward<T>&);

// Gradient of the mean loss. About 20 flops per logit. Reads and writes each row once.
template <class T>
struct CrossEntropyBackward {
  T* d_logits_bcv;  // overwritten; may be logits_bcv itself
  const Accum<T>* lse_bc;
  const Index* count;  // count of forward; for a part of a batch, count of the whole batch
  CrossEntropyInputs<T> in;
};
template <class Device, class T>
void cross_entropy_backward(Device&, const CrossEntropyBackward<T>&);

}  // namespace abh
