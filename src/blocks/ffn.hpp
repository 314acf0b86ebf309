#pragma once

#include <string>

#include "blocks/norm.hpp"
#include "layers/gelu.hpp"
#include "layers/linear.hpp"
#include "settings/config.hpp"

namespace abh {

// The feed-forward block: two linear maps with a GELU between them, on every position alone. Vaswani et al., "Attention
// is all you need", 2017; GELU instead of ReLU as in GPT-2. Chapter: docs/blocks/ffn.md.
//
//   h_bcd      = layernorm(x_bcd)                                (ffn.1)
//   up_bcf     = h_bcd up_fd^T + up_bias_f                       (ffn.2)
//   hidden_bcf = gelu(up_bcf)                                    (ffn.3)
//   y_bcd      = hidden_bcf down_df^T + down_bias_d              (ffn.4)
//   out_bcd    = x_bcd + dropout(y_bcd)                          (ffn.5)
//
// Backward, d_y = dropout'(d_out):
//
//   d_hidden_bcf = d_y_bcd down_df                               (ffn.6)
//   d_up_bcf     = d_hidden_bcf gelu'(up_bcf)                    (ffn.7)
//   d_h_bcd      = d_up_bcf up_fd                                (ffn.8)
//   d_x_bcd      = d_out_bcd + layernorm'(d_h_bcd)               (ffn.9)
//
// Saved: the norm's statistics, up_bcf and, unless they are computed again, the norm's output and hidden_bcf. Cost:
// 4 D F flops a position forward, twice that backward. F = 4 D.
template <class Device, class T>
class FfnBlock : public Block<Device, T> {
 public:
  FfnBlock(Layout<T>& layout, const std::string& prefix, const ModelConfig& config, const BlockExtent& extent,
           const BlockOptions& options)
      : D_(config.channels),
        F_(config.ffn_channels()),
        options_(options),
        norm_(layout, prefix + "norm_", options.norm, D_, extent) {
    up_ = layout.weight(prefix + "up_fd", {F_, D_}, Init::normal, Kind::linear);
    if (config.ffn_bias) up_bias_ = layout.weight(prefix + "up_bias_f", {F_}, Init::zero, Kind::undecayed);
    down_ = layout.weight(prefix + "down_df", {D_, F_}, Init::normal_residual, Kind::linear);
    if (config.ffn_bias) down_bias_ = layout.weight(prefix + "down_bias_d", {D_}, Init::zero, Kind::undecayed);
    up_bcf_ = layout.template activation<T>(extent.B * extent.C * F_);
    hidden_bcf_ = layout.template cheap_activation<T>(extent.B * extent.C * F_);
  }

  void forward(Device& device, T* out_bcd, const T* in_bcd, const Pass& pass) override {
    const Index BC = pass.BC();
    typename Device::Scope scratch(device.workspace);
    T* hidden_bcf = hidden_bcf_ ? hidden_bcf_ : scratch.template take<T>(BC * F_);
    const T* h_bcd = norm_.forward(device, out_bcd, in_bcd, BC);  // (ffn.1)
    linear_forward<Device, T>(device, {.out_bco = up_bcf_,
                                       .in_bci = h_bcd,
                                       .weight_oi = up_.value,
                                       .bias_o = up_bias_.value,
                                       .BC = BC,
                                       .I = D_,
                                       .O = F_});                                  // (ffn.2)
    gelu_forward<Device, T>(device, hidden_bcf, up_bcf_, BC * F_, GeluForm::erf);  // (ffn.3)
    linear_forward<Device, T>(device, {.out_bco = out_bcd,
                                       .in_bci = hidden_bcf,
                                       .weight_oi = down_.value,
                                       .bias_o = down_bias_.value,
                                       .BC = BC,
                                       .I = F_,
                                       .O = D_});  // (ffn.4)
    dropout_forward<Device, T>(device, out_bcd, out_bcd, options_.residual ? in_bcd : nullptr, dropout(pass),
                               BC * D_);  // (ffn.5)
  }

  void backward(Device& device, T* d_x_bcd, const T* in_bcd, const Pass& pass) override {
    const Index BC = pass.BC();
    typename Device::Scope scratch(device.workspace);
    T* d_y_bcd = scratch.template take<T>(BC * D_);
    T* d_up_bcf = scratch.template take<T>(BC * F_);
    dropout_backward<Device, T>(device, d_y_bcd, d_x_bcd, dropout(pass), BC * D_);
    if (!hidden_bcf_) gelu_forward<Device, T>(device, d_up_bcf, up_bcf_, BC * F_, GeluForm::erf);  // (ffn.3) again
    linear_backward_weight<Device, T>(device, {.d_weight_oi = down_.gradient,
                                               .d_bias_o = down_bias_.gradient,
                                               .d_out_bco = d_y_bcd,
                                               .in_bci = hidden_bcf_ ? hidden_bcf_ : d_up_bcf,
                                               .BC = BC,
                                               .I = F_,
                                               .O = D_});
    linear_backward_input<Device, T>(
        device,
        {.d_in_bci = d_up_bcf, .d_out_bco = d_y_bcd, .weight_oi = down_.value, .BC = BC, .I = F_, .O = D_});  // (ffn.6)
    gelu_backward<Device, T>(device, d_up_bcf, d_up_bcf, up_bcf_, BC * F_, GeluForm::erf);                    // (ffn.7)
    T* d_h_bcd = d_y_bcd;  // no longer needed
    linear_backward_weight<Device, T>(device, {.d_weight_oi = up_.gradient,
                                               .d_bias_o = up_bias_.gradient,
                                               .d_out_bco = d_up_bcf,
                                               .in_bci = norm_.normed(device, d_h_bcd, in_bcd, BC),
                                               .BC = BC,
                                               .I = D_,
                                               .O = F_});
    linear_backward_input<Device, T>(
        device,
        {.d_in_bci = d_h_bcd, .d_out_bco = d_up_bcf, .weight_oi = up_.value, .BC = BC, .I = D_, .O = F_});  // (ffn.8)
    norm_.backward(device, d_x_bcd, d_h_bcd, options_.residual ? d_x_bcd : nullptr, in_bcd, BC);            // (ffn.9)
  }

  // Every position is computed alone: a step is a pass over one row.
  void step(Device& device, T* out_d, const T* in_d, Index) override { forward(device, out_d, in_d, {.B = 1, .C = 1}); }

 private:
  Dropout dropout(const Pass& pass) const { return dropout_of(pass, options_, sites::LayerUse::ffn); }

  Index D_, F_;
  BlockOptions options_;
  Norm<Device, T> norm_;
  Weight<T> up_, up_bias_, down_, down_bias_;
  T* up_bcf_;
  T* hidden_bcf_;
};

}  // namespace abh
