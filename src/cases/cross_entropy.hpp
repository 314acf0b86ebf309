#pragma once

#include "cases/case.hpp"
#include "layers/cross_entropy.hpp"

namespace abh {

// loss = mean of loss_bc over the counted rows. The gradient of the loss is 1. targets_bc, count and best_bc
// (predictions, may be null) are in device memory.
struct CrossEntropyCase {
  Index BC, V;
  const Token* targets_bc;
  Index* count;
  double label_smoothing = 0;
  Token* best_bc = nullptr;

  std::vector<TensorSpec> inputs() const { return {activation("logits_bcv", {BC, V})}; }
  std::vector<TensorSpec> outputs() const {
    TensorSpec loss = statistic("loss", {}), loss_bc = statistic("loss_bc", {BC});
    loss.offset = 1;
    loss.scale = loss_bc.scale = 0;
    return {loss, loss_bc};
  }
  std::vector<TensorSpec> saved() const { return {statistic("lse_bc", {BC})}; }

  template <class Device, class Arrays, class T = typename Arrays::Number>
  void forward(Device& device, Arrays& a) const {
    cross_entropy_forward<Device, T>(device, {.loss = a.out[0].data(),
                                              .loss_bc = a.out[1].data(),
                                              .lse_bc = a.saved[0].data(),
                                              .count = count,
                                              .best_bc = best_bc,
                                              .in = inputs_of<T>(a)});
  }
  template <class Device, class Arrays, class T = typename Arrays::Number>
  void backward(Device& device, Arrays& a) const {
    cross_entropy_backward<Device, T>(
        device, {.d_logits_bcv = a.d_in[0].data(), .lse_bc = a.saved[0].data(), .count = count, .in = inputs_of<T>(a)});
  }

 private:
  template <class T, class Arrays>
  CrossEntropyInputs<T> inputs_of(Arrays& a) const {
    return {
        .logits_bcv = a.in[0].data(), .targets_bc = targets_bc, .label_smoothing = label_smoothing, .BC = BC, .V = V};
  }
};

}  // namespace abh
