#pragma once

#include <memory>
#include <string>
#include <utility>

#include "blocks/block.hpp"
#include "blocks/parts/norm.hpp"

namespace abh {

// A post-norm block (Vaswani et al., 2017): the block has a residual and no norm of its own. Its output is normalised
// with the weights PREFIXnorm_weight_d and PREFIXnorm_bias_d.
//
//   sum_bcd = block(x_bcd),  out_bcd = layernorm(sum_bcd)
//   d_sum_bcd = layernorm_backward(d_out_bcd),  d_x_bcd = block_backward(d_sum_bcd)
template <class Device, class T>
class NormAfter : public Block<Device, T> {
 public:
  NormAfter(Layout<T>& layout, const std::string& prefix, Index D, const BlockCapacity& capacity,
            std::unique_ptr<Block<Device, T>> block)
      : D_(D),
        block_(std::move(block)),
        norm_(layout, prefix + "norm_", true, D, capacity, false),
        sum_bcd_(layout.template activation<T>(capacity.B * capacity.C * D)) {}

  void forward(Device& device, T* out_bcd, const T* in_bcd, const PassContext& pass) override {
    block_->forward(device, sum_bcd_, in_bcd, pass);
    norm_.forward(device, out_bcd, sum_bcd_, pass.BC());
  }

  void backward(Device& device, T* d_x_bcd, const T* in_bcd, const PassContext& pass) override {
    norm_.backward(device, d_x_bcd, d_x_bcd, nullptr, sum_bcd_, pass.BC());
    block_->backward(device, d_x_bcd, in_bcd, pass);
  }

  void inspect(Device& device, const Inspector& inspector, const T* out_bcd, const PassContext& pass) const override {
    block_->inspect(device, inspector, sum_bcd_, pass);
    report(device, inspector, "normed_bcd", out_bcd, {pass.B, pass.C, D_}, D_);
  }

  void reset(Device& device) override { block_->reset(device); }
  void continue_after_prefill(Device& device, Index positions) override {
    block_->continue_after_prefill(device, positions);
  }
  void decode(Device& device, T* out_d, const T* in_d, Index position) override {
    block_->decode(device, sum_bcd_, in_d, position);
    norm_.forward(device, out_d, sum_bcd_, 1);
  }

 private:
  Index D_;
  std::unique_ptr<Block<Device, T>> block_;
  Norm<Device, T> norm_;
  T* sum_bcd_;
};

}  // namespace abh
