#pragma once

#include "blocks/block.hpp"
#include "layers/pooling.hpp"

namespace abh {

// Payload rows of a pooling, or their gradients. The stride is the distance between two consecutive rows, 0 for rows
// that touch.
template <class Element>
struct Payload {
  Element* x_bch;
  Index stride = 0;
};

// A pooling with what it saves for its backward pass, and the state of step-by-step inference. The logits are
// another's.
template <class Device, class T>
class Pooling {
 public:
  // shape: with the largest B and C; a pass brings its own. slope_n: null without decay.
  Pooling(Layout<T>& layout, const PoolingShape& shape, const Accum<T>* slope_n, const BlockExtent& extent)
      : shape_(shape),
        slope_n_(slope_n),
        max_bnc_(layout.template activation<Accum<T>>(extent.B * extent.C * shape.N)),
        sum_bnc_(layout.template activation<Accum<T>>(extent.B * extent.C * shape.N)),
        out_bch_(layout.template activation<T>(extent.B * extent.C * shape.H())) {
    if (extent.positions) state_ = layout.template state<Accum<T>>(pooling_state_size(shape, slope_n != nullptr));
  }

  // What the last pass or step pooled, and the weight behind it, sum e^max.
  const T* out_bch() const { return out_bch_; }
  const Accum<T>* max_bnc() const { return max_bnc_; }
  const Accum<T>* sum_bnc() const { return sum_bnc_; }

  // out_bch = pool(logit, x)
  void forward(Device& device, const Accum<T>* logit_bnc, const Payload<const T>& x, const Pass& pass) const {
    pooling_forward<Device, T>(device, {.out_bch = out_bch_,
                                        .max_bnc = max_bnc_,
                                        .sum_bnc = sum_bnc_,
                                        .logit_bnc = logit_bnc,
                                        .x_bch = x.x_bch,
                                        .x_stride = x.stride,
                                        .slope_n = slope_n_,
                                        .mask_bc = pass.mask_bc,
                                        .shape = shape(pass)});
  }

  // d_x, d_logit_bnc = pooling_backward(d_out, d_lse_bnc); d_x is added to where `accumulate` is set, else overwritten.
  // d_lse_bnc: of max + log sum; null where nobody used it.
  void backward(Device& device, const Payload<T>& d_x, bool accumulate, Accum<T>* d_logit_bnc, const T* d_out_bch,
                const Accum<T>* d_lse_bnc, const Accum<T>* logit_bnc, const Payload<const T>& x,
                const Pass& pass) const {
    pooling_backward<Device, T>(device, {.d_x_bch = d_x.x_bch,
                                         .d_x_stride = d_x.stride,
                                         .accumulate = accumulate,
                                         .d_logit_bnc = d_logit_bnc,
                                         .d_out_bch = d_out_bch,
                                         .d_lse_bnc = d_lse_bnc,
                                         .out_bch = out_bch_,
                                         .max_bnc = max_bnc_,
                                         .sum_bnc = sum_bnc_,
                                         .logit_bnc = logit_bnc,
                                         .x_bch = x.x_bch,
                                         .x_stride = x.stride,
                                         .slope_n = slope_n_,
                                         .mask_bc = pass.mask_bc,
                                         .shape = shape(pass)});
  }

  void start(Device& device) const {
    pooling_start<Device, T>(device, state_, shape(one_position), slope_n_ != nullptr);
  }

  // One position, causal.
  void step(Device& device, const Accum<T>* logit_n, const T* x_h) const {
    pooling_step<Device, T>(device, {.out_h = out_bch_,
                                     .max_n = max_bnc_,
                                     .sum_n = sum_bnc_,
                                     .state = state_,
                                     .logit_n = logit_n,
                                     .x_h = x_h,
                                     .slope_n = slope_n_,
                                     .shape = shape(one_position)});
  }

 private:
  PoolingShape shape(const Pass& pass) const {
    PoolingShape shape = shape_;
    shape.B = pass.B;
    shape.C = pass.C;
    return shape;
  }

  PoolingShape shape_;
  const Accum<T>* slope_n_;
  Accum<T>* max_bnc_;
  Accum<T>* sum_bnc_;
  T* out_bch_;
  Accum<T>* state_ = nullptr;
};

}  // namespace abh
