#pragma once

#include <memory>
#include <string>
#include <utility>

#include "blocks/block.hpp"
#include "layers/layernorm.hpp"

namespace abh {

// A block of a network whose norms stand behind the sums (Vaswani et al., 2017): the block has a residual and no norm
// of its own, and what leaves it is normed with weights PREFIXnorm_weight_d and PREFIXnorm_bias_d.
//
//   sum_bcd = block(x_bcd),  out_bcd = layernorm(sum_bcd)
//   d_sum_bcd = layernorm_backward(d_out_bcd),  d_x_bcd = block_backward(d_sum_bcd)
template <class Device, class T>
class NormAfter : public Block<Device, T> {
 public:
  NormAfter(Layout<T>& layout, const std::string& prefix, Index D, const BlockExtent& extent,
            std::unique_ptr<Block<Device, T>> block)
      : D_(D),
        block_(std::move(block)),
        weight_(layout.weight(prefix + "norm_weight_d", {D}, Init::one, Kind::undecayed)),
        bias_(layout.weight(prefix + "norm_bias_d", {D}, Init::zero, Kind::undecayed)),
        sum_bcd_(layout.template activation<T>(extent.B * extent.C * D)),
        mean_bc_(layout.template activation<Accum<T>>(extent.B * extent.C)),
        rstd_bc_(layout.template activation<Accum<T>>(extent.B * extent.C)) {}

  void forward(Device& device, T* out_bcd, const T* in_bcd, const Pass& pass) override {
    block_->forward(device, sum_bcd_, in_bcd, pass);
    norm(device, out_bcd, pass.BC());
  }

  void backward(Device& device, T* d_x_bcd, const T* in_bcd, const Pass& pass) override {
    layernorm_backward<Device, T>(device, {.d_in_bcd = d_x_bcd,
                                           .d_weight_d = weight_.gradient,
                                           .d_bias_d = bias_.gradient,
                                           .d_out_bcd = d_x_bcd,
                                           .in_bcd = sum_bcd_,
                                           .mean_bc = mean_bc_,
                                           .rstd_bc = rstd_bc_,
                                           .weight_d = weight_.value,
                                           .BC = pass.BC(),
                                           .D = D_});
    block_->backward(device, d_x_bcd, in_bcd, pass);
  }

  void look(Device& device, const Look& look, const T* out_bcd, const Pass& pass) const override {
    block_->look(device, look, sum_bcd_, pass);
    show(device, look, "normed_bcd", out_bcd, {pass.B, pass.C, D_}, D_);
  }

  void start(Device& device) override { block_->start(device); }
  void go_on(Device& device, Index positions) override { block_->go_on(device, positions); }
  void step(Device& device, T* out_d, const T* in_d, Index position) override {
    block_->step(device, sum_bcd_, in_d, position);
    norm(device, out_d, 1);
  }

 private:
  void norm(Device& device, T* out_bcd, Index BC) {
    layernorm_forward<Device, T>(device, out_bcd, mean_bc_, rstd_bc_, sum_bcd_, weight_.value, bias_.value, BC, D_);
  }

  Index D_;
  std::unique_ptr<Block<Device, T>> block_;
  Weight<T> weight_, bias_;
  T* sum_bcd_;
  Accum<T>* mean_bc_;
  Accum<T>* rstd_bc_;
};

}  // namespace abh
