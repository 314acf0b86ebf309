#pragma once

#include "cases/case.hpp"
#include "layers/pooling.hpp"

namespace abh {

// out_bch = pooling(logit_bnc, x_bch).
struct PoolingCase {
  PoolingShape shape;
  const Token* mask_bc = nullptr;
  bool accumulate = false;   // true: the gradient of x is added to
  Index gap = 0, d_gap = 0;  // between rows of x, and of its gradient
  bool decays = false;       // true: the last input is the slopes

  Index H() const { return shape.H(); }
  std::vector<TensorSpec> inputs() const {
    TensorSpec x = spread(activation("x_bch", {shape.B, shape.C, H()}), gap, d_gap);
    x.adds = accumulate;
    std::vector<TensorSpec> specs = {statistic("logit_bnc", {shape.B, shape.N, shape.C}), x};
    if (decays) {
      specs.push_back(constant("slope_n", {shape.N}));
      specs[2].scale = 0.1;  // slopes are positive
      specs[2].offset = 0.5;
    }
    return specs;
  }
  std::vector<TensorSpec> outputs() const { return {activation("out_bch", {shape.B, shape.C, H()})}; }
  std::vector<TensorSpec> saved() const {
    return {statistic("max_bnc", {shape.B, shape.N, shape.C}), statistic("sum_bnc", {shape.B, shape.N, shape.C})};
  }

  template <class T, class Arrays>
  PoolingForward<T> forward_of(Arrays& a) const {
    return {
        .out_bch = a.out[0].data(), .max_bnc = a.saved[0].data(), .sum_bnc = a.saved[1].data(), .in = inputs_of<T>(a)};
  }
  template <class T, class Arrays>
  PoolingBackward<T> backward_of(Arrays& a) const {
    return {.d_x_bch = a.d_in[1].data(),
            .d_x_stride = stride_with(H(), d_gap),
            .accumulate = accumulate,
            .d_logit_bnc = a.d_in[0].data(),
            .d_out_bch = a.d_out[0].data(),
            .out_bch = a.out[0].data(),
            .max_bnc = a.saved[0].data(),
            .sum_bnc = a.saved[1].data(),
            .in = inputs_of<T>(a)};
  }
  template <class Device, class Arrays, class T = typename Arrays::Number>
  void forward(Device& device, Arrays& a) const {
    pooling_forward<Device, T>(device, forward_of<T>(a));
  }
  template <class Device, class Arrays, class T = typename Arrays::Number>
  void backward(Device& device, Arrays& a) const {
    pooling_backward<Device, T>(device, backward_of<T>(a));
  }

 private:
  template <class T, class Arrays>
  PoolingInputs<T> inputs_of(Arrays& a) const {
    PoolingInputs<T> in{.logit_bnc = a.in[0].data(),
                        .x_bch = a.in[1].data(),
                        .x_stride = stride_with(H(), gap),
                        .mask_bc = mask_bc,
                        .shape = shape};
    if (decays) in.slope_n = a.in[2].data();
    return in;
  }
};

}  // namespace abh
