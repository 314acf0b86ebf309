#pragma once

#include "cases/case.hpp"
#include "layers/leap_logits.hpp"

namespace abh {

// logit_bnc = scale focus_bch key_bch, bent where it is positive and the form says so. The gradient of the keys is
// added to.
struct LeapLogitsCase {
  Index B, C, N, K;
  FocusForm form = FocusForm::elu;
  double scale = 1;
  Index gap = 0, d_gap = gap;  // between rows of focus and keys, and of their gradients

  std::vector<Slot> inputs() const {
    Slot focus = spread(activation("focus_bch", {B, C, N * K}), gap, d_gap);
    Slot key = spread(activation("key_bch", {B, C, N * K}), gap, d_gap);
    key.adds = true;
    return {focus, key};
  }
  std::vector<Slot> outputs() const { return {statistic("logit_bnc", {B, N, C})}; }
  // Nothing but the output; a case without this would have no forward pass before its backward pass.
  std::vector<Slot> saved() const { return {statistic("nothing", {0})}; }

  template <class Device, class Arrays, class T = typename Arrays::Number>
  void forward(Device& device, Arrays& a) const {
    LeapLogitsForward<T> pass{};
    pass.logit_bnc = a.out[0].data();
    set_inputs(pass, a);
    leap_logits_forward<Device, T>(device, pass);
  }
  template <class Device, class Arrays, class T = typename Arrays::Number>
  void backward(Device& device, Arrays& a) const {
    LeapLogitsBackward<T> pass{};
    pass.d_focus_bch = a.d_in[0].data();
    pass.d_key_bch = a.d_in[1].data();
    pass.d_stride = stride_with(N * K, d_gap);
    pass.d_logit_bnc = a.d_out[0].data();
    pass.logit_bnc = a.out[0].data();
    set_inputs(pass, a);
    leap_logits_backward<Device, T>(device, pass);
  }

 private:
  // What both passes read.
  template <class Pass, class Arrays>
  void set_inputs(Pass& pass, Arrays& a) const {
    pass.focus_bch = a.in[0].data();
    pass.key_bch = a.in[1].data();
    pass.stride = stride_with(N * K, gap);
    pass.form = form;
    pass.scale = scale;
    pass.B = B;
    pass.C = C;
    pass.N = N;
    pass.K = K;
  }
};

}  // namespace abh
