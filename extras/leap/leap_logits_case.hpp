#pragma once

#include "cases/case.hpp"
#include "extras/leap/leap_logits.hpp"

namespace abh {

// logit_bnc = scale focus_bch key_bch; with FocusForm::elu, its logarithm form for positive scores. The gradient of the
// keys is accumulated.
struct LeapLogitsCase {
  Index B, C, N, K;
  FocusForm form = FocusForm::elu;
  double scale = 1;
  Index gap = 0, d_gap = gap;  // between rows of focus and keys, and of their gradients

  std::vector<TensorSpec> inputs() const {
    TensorSpec focus = spread(activation("focus_bch", {B, C, N * K}), gap, d_gap);
    TensorSpec key = spread(activation("key_bch", {B, C, N * K}), gap, d_gap);
    key.adds = true;
    return {focus, key};
  }
  std::vector<TensorSpec> outputs() const { return {statistic("logit_bnc", {B, N, C})}; }
  // An empty tensor; a case without it would have no forward pass before its backward pass.
  std::vector<TensorSpec> saved() const { return {statistic("nothing", {0})}; }

  template <class Device, class Arrays, class T = typename Arrays::Number>
  void forward(Device& device, Arrays& a) const {
    leap_logits_forward<Device, T>(device, {.logit_bnc = a.out[0].data(), .in = inputs_of<T>(a)});
  }
  template <class Device, class Arrays, class T = typename Arrays::Number>
  void backward(Device& device, Arrays& a) const {
    leap_logits_backward<Device, T>(device, {.d_focus_bch = a.d_in[0].data(),
                                             .d_key_bch = a.d_in[1].data(),
                                             .d_stride = stride_with(N * K, d_gap),
                                             .d_logit_bnc = a.d_out[0].data(),
                                             .logit_bnc = a.out[0].data(),
                                             .in = inputs_of<T>(a)});
  }

 private:
  template <class T, class Arrays>
  LeapLogitsInputs<T> inputs_of(Arrays& a) const {
    return {.focus_bch = a.in[0].data(),
            .key_bch = a.in[1].data(),
            .stride = stride_with(N * K, gap),
            .form = form,
            .scale = scale,
            .B = B,
            .C = C,
            .N = N,
            .K = K};
  }
};

}  // namespace abh
