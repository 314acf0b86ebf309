#pragma once

#include "blocks/parts/linear.hpp"
#include "blocks/parts/norm.hpp"
#include "extras/chunks/copy_rows.hpp"
#include "extras/classifiers/masked_mean.hpp"
#include "network/heads.hpp"
#include "settings/config.hpp"

namespace abh {

// One row of logits per sequence: from the mean of its unmasked positions, or from its first position, which holds a
// learned vector (cls) instead of a token. The norm is optional:
//
//   logits_bo = row_bd weight_od^T + bias_o,  row_bd = masked_mean(norm(x_bcd)) or norm(x_bcd) at c = 0
template <class Device, class T>
class ClassifierHead : public Head<Device, T> {
 public:
  ClassifierHead(Layout<T>& layout, const ModelConfig& config, const BlockCapacity& capacity)
      : D_(config.channels),
        O_(config.classes),
        has_norm_(config.has_final_norm()),
        first_position_(config.has_cls()),
        norm_(layout, "final_norm.", has_norm_, D_, capacity),
        weight_(layout.weight("classifier.weight_od", {O_, D_}, Init::normal, Kind::decayed)),
        bias_(layout.weight("classifier.bias_o", {O_}, Init::zero, Kind::undecayed)),
        row_bd_(layout.template activation<T>(capacity.B * D_)),
        share_b_(layout.template activation<Accum<T>>(capacity.B)) {}

  Index rows(const PassContext& pass) const override { return pass.B; }
  Index columns() const override { return O_; }

  void forward(Device& device, T* logits_bo, const T* x_bcd, const PassContext& pass) override {
    typename Device::Scope scratch(device.workspace);
    T* scratch_bcd = norm_.scratch_rows(scratch, pass.BC());
    const T* h_bcd = norm_.forward(device, scratch_bcd, x_bcd, pass.BC());
    if (first_position_) {
      copy_rows<Device, T>(
          device,
          {.to = row_bd_, .to_stride = D_, .from = h_bcd, .from_stride = pass.C * D_, .rows = pass.B, .columns = D_});
    } else {
      masked_mean_forward<Device, T>(device, row_bd_, share_b_, h_bcd, pass.mask_bc, pass.B, pass.C, D_);
    }
    linear_forward<Device, T>(device, {.out_bco = logits_bo,
                                       .in_bci = row_bd_,
                                       .weight_oi = weight_.value,
                                       .bias_o = bias_.value,
                                       .shape = {.BC = pass.B, .I = D_, .O = O_}});
  }

  void backward(Device& device, T* d_x_bcd, const T* d_logits_bo, const T* x_bcd, const PassContext& pass) override {
    typename Device::Scope scratch(device.workspace);
    T* d_row_bd = scratch.template take<T>(pass.B * D_);
    typename Device::SideStream weights(device);  // computes gradients of weights concurrently
    linear_backward_weight<Device, T>(weights.fork(), {.d_weight_oi = weight_.gradient,
                                                       .d_bias_o = bias_.gradient,
                                                       .d_out_bco = d_logits_bo,
                                                       .in_bci = row_bd_,
                                                       .shape = {.BC = pass.B, .I = D_, .O = O_}});
    linear_backward_input<Device, T>(device, {.d_in_bci = d_row_bd,
                                              .d_out_bco = d_logits_bo,
                                              .weight_oi = weight_.value,
                                              .shape = {.BC = pass.B, .I = D_, .O = O_}});
    if (first_position_) {
      device.set_zero(d_x_bcd, pass.BC() * D_);
      copy_rows<Device, T>(device, {.to = d_x_bcd,
                                    .to_stride = pass.C * D_,
                                    .from = d_row_bd,
                                    .from_stride = D_,
                                    .rows = pass.B,
                                    .columns = D_});
    } else {
      masked_mean_backward<Device, T>(device, d_x_bcd, d_row_bd, share_b_, pass.mask_bc, pass.B, pass.C, D_);
    }
    if (has_norm_) norm_.backward(device, d_x_bcd, d_x_bcd, nullptr, x_bcd, pass.BC());
  }

 private:
  Index D_, O_;
  bool has_norm_, first_position_;
  Norm<Device, T> norm_;
  Weight<T> weight_, bias_;
  T* row_bd_;
  Accum<T>* share_b_;
};

}  // namespace abh
