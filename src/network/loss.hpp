#pragma once

#include "blocks/block.hpp"
#include "layers/cross_entropy.hpp"
#include "network/heads.hpp"

namespace abh {

// Cross entropy of the logits of a head, with one target per row, averaged over the counted targets.
template <class Device, class T>
class Loss {
 public:
  Loss(Layout<T>& layout, const Head<Device, T>& head, const BlockCapacity& capacity)
      : V_(head.columns()),
        stride_(head.stride()),
        logits_rv_(layout.template activation<T>(head.rows({capacity.B, capacity.C}) * stride_)),
        mean_(layout.template activation<Accum<T>>(1)),
        each_r_(layout.template activation<Accum<T>>(head.rows({capacity.B, capacity.C}))),
        lse_r_(layout.template activation<Accum<T>>(head.rows({capacity.B, capacity.C}))),
        count_(layout.template activation<Index>(1)),
        best_r_(layout.template activation<Token>(head.rows({capacity.B, capacity.C}))) {}

  // Logits, computed by the head, with its stride; backward overwrites them with their gradient.
  T* logits_rv() const { return logits_rv_; }

  // Mean over the counted targets, their number, and the loss of each target (0 if not counted), in device memory. With
  // finds_best, also the index of the largest logit of each counted row.
  struct Result {
    const Accum<T>* mean;
    const Index* count;
    const Accum<T>* each_r;
    const Token* best_r;
  };
  Result forward(Device& device, const Token* target_r, double label_smoothing, Index rows, bool finds_best) {
    cross_entropy_forward<Device, T>(device, {.loss = mean_,
                                              .loss_bc = each_r_,
                                              .lse_bc = lse_r_,
                                              .count = count_,
                                              .best_bc = finds_best ? best_r_ : nullptr,
                                              .in = inputs(target_r, label_smoothing, rows)});
    return {mean_, count_, each_r_, best_r_};
  }

  // count: divisor of the losses; null: the count of forward.
  void backward(Device& device, const Token* target_r, double label_smoothing, Index rows, const Index* count) {
    cross_entropy_backward<Device, T>(device, {.d_logits_bcv = logits_rv_,
                                               .lse_bc = lse_r_,
                                               .count = count ? count : count_,
                                               .in = inputs(target_r, label_smoothing, rows)});
  }

 private:
  CrossEntropyInputs<T> inputs(const Token* target_r, double label_smoothing, Index rows) const {
    return {.logits_bcv = logits_rv_,
            .targets_bc = target_r,
            .label_smoothing = label_smoothing,
            .BC = rows,
            .V = V_,
            .stride = stride_};
  }

  Index V_, stride_;
  T* logits_rv_;
  Accum<T>* mean_;
  Accum<T>* each_r_;
  Accum<T>* lse_r_;
  Index* count_;
  Token* best_r_;
};

}  // namespace abh
