#pragma once

#include <string>

#include "blocks/parts/linear.hpp"
#include "blocks/parts/norm.hpp"
#include "blocks/parts/residual.hpp"
#include "layers/gelu.hpp"
#include "layers/parts/with_row_sums.hpp"
#include "settings/config.hpp"

namespace abh {

// A part of a feature (network/mixers.hpp).
template <class Device, class T>
class Relu;

// The feed-forward block: two linear maps with a GELU or a ReLU between them, applied to each position separately. The
// original has a ReLU: Vaswani et al., "Attention is all you need", 2017. GPT-2 has the tanh form of the GELU. Chapter:
// docs/blocks/ffn.md.
//
//   h_bcd      = layernorm(x_bcd)                                (ffn.1)
//   up_bcf     = sum_d h_bcd up_fd {+ up_bias_f | given}         (ffn.2)
//   hidden_bcf = gelu(up_bcf), or relu(up_bcf)                   (ffn.3)
//   y_bcd      = sum_f hidden_bcf down_df {+ down_bias_d | given}   (ffn.4)
//   out_bcd    = x_bcd + dropout(y_bcd)                          (ffn.5)
//
// Backward; layernorm_backward also adds to the gradients of the weights of the norm:
//
//   d_y_bcd        = dropout_backward(d_out_bcd)                                        (ffn.6)
//   d_down_df     += sum_bc d_y_bcd hidden_bcf,  d_down_bias_d += sum_bc d_y_bcd        (ffn.7)
//   d_hidden_bcf   = sum_d d_y_bcd down_df                                              (ffn.8)
//   d_up_bcf       = gelu_backward(d_hidden_bcf), or relu_backward(d_hidden_bcf)        (ffn.9)
//   d_up_fd       += sum_bc d_up_bcf h_bcd,  d_up_bias_f += sum_bc d_up_bcf             (ffn.10)
//   d_h_bcd        = sum_f d_up_bcf up_fd                                               (ffn.11)
//   d_x_bcd        = d_out_bcd + layernorm_backward(d_h_bcd)                            (ffn.12)
//
// Saved: statistics of the norm, up_bcf; unless recomputed, the output of the norm and hidden_bcf. Cost: 4 D F flops
// per position forward, twice that backward. By default, F = 4 D.
template <class Device, class T>
class FfnBlock : public Block<Device, T> {
 public:
  FfnBlock(Layout<T>& layout, const std::string& prefix, const ModelConfig& config, const BlockCapacity& capacity,
           const BlockOptions& options)
      : D_(config.channels),
        F_(config.ffn_channels()),
        relu_(config),
        gelu_form_(config.activation == "gelu_tanh" ? GeluForm::tanh : GeluForm::erf),
        norm_(layout, prefix + "norm_", options.norm, D_, capacity),
        up_(layout, prefix, {"up_fd"}, F_, D_, Init::normal, config.ffn_bias),
        down_(layout, prefix, {"down_df"}, D_, F_, Init::normal_residual, config.ffn_bias),
        residual_(options, sites::LayerUse::ffn, D_),
        up_bcf_(layout.template activation<T>(capacity.B * capacity.C * F_)),
        hidden_bcf_(layout.template recomputable_activation<T>(capacity.B * capacity.C * F_)) {}

  void forward(Device& device, T* out_bcd, const T* in_bcd, const PassContext& pass) override {
    const Index BC = pass.BC();
    typename Device::Scope scratch(device.workspace);
    T* hidden_bcf = hidden_bcf_ ? hidden_bcf_ : scratch.template take<T>(BC * F_);
    const T* h_bcd = norm_.forward(device, out_bcd, in_bcd, BC);  // (ffn.1)
    up_.forward(device, up_bcf_, h_bcd, BC);                      // (ffn.2)
    activate(device, hidden_bcf, BC);                             // (ffn.3)
    down_.forward(device, out_bcd, hidden_bcf, BC);               // (ffn.4)
    residual_.forward(device, out_bcd, out_bcd, in_bcd, pass);    // (ffn.5)
  }

  void backward(Device& device, T* d_x_bcd, const T* in_bcd, const PassContext& pass) override {
    const Index BC = pass.BC();
    typename Device::Scope scratch(device.workspace);
    T* d_y_bcd = scratch.template take<T>(BC * D_);
    T* d_up_bcf = scratch.template take<T>(BC * F_);
    T* d_hidden_bcf = d_up_bcf;  // the activation works in place
    // The side stream may still read d_y when d_h is written. Without a side stream, d_h can reuse d_y.
    T* d_h_bcd = Device::SideStream::runs_beside ? scratch.template take<T>(BC * D_) : d_y_bcd;
    typename Device::SideStream weights(device);  // weight gradients run concurrently

    // (ffn.8) and (ffn.11) overwrite the memory of recomputed arrays, so these arrays must be used before.
    Accum<T>* d_down_bias_d = down_.joined_bias();
    Accum<T>* d_up_bias_f = up_.joined_bias();
    residual_.backward(device, d_y_bcd, d_x_bcd, pass, d_down_bias_d);  // (ffn.6)
    const T* hidden_bcf = hidden(device, d_hidden_bcf, BC);
    down_.backward_weight(weights.fork(), d_y_bcd, hidden_bcf, BC, d_down_bias_d != nullptr);  // (ffn.7)
    if (hidden_bcf == d_hidden_bcf) weights.join();
    down_.backward_input(device, d_hidden_bcf, d_y_bcd, BC);             // (ffn.8)
    activate_backward(device, d_up_bcf, d_hidden_bcf, BC, d_up_bias_f);  // (ffn.9)
    const T* h_bcd = norm_.normed(device, d_h_bcd, in_bcd, BC);
    up_.backward_weight(weights.fork(), d_up_bcf, h_bcd, BC, d_up_bias_f != nullptr);  // (ffn.10)
    if (h_bcd == d_h_bcd) weights.join();
    up_.backward_input(device, d_h_bcd, d_up_bcf, BC);  // (ffn.11)
    // d_x_bcd still contains the gradient of the residual connection; layernorm_backward adds it.
    norm_.backward(device, d_x_bcd, d_h_bcd, residual_.around(d_x_bcd), in_bcd, BC);  // (ffn.12)
  }

  void inspect(Device& device, const Inspector& inspector, const T* out_bcd, const PassContext& pass) const override {
    const std::vector<Index> bcd = {pass.B, pass.C, D_}, bcf = {pass.B, pass.C, F_};
    report(device, inspector, "h_bcd", norm_.saved(), bcd, D_);
    report(device, inspector, "up_bcf", up_bcf_, bcf, F_);
    report(device, inspector, "hidden_bcf", hidden_bcf_, bcf, F_);
    report(device, inspector, "out_bcd", out_bcd, bcd, D_);
  }

  // Positions are independent, so a decode step is a pass over one row.
  void decode(Device& device, T* out_d, const T* in_d, Index) override { forward(device, out_d, in_d, one_position); }

 private:
  // Rows that forward computed; recomputed into scratch_bcf if they were not saved.
  const T* hidden(Device& device, T* scratch_bcf, Index BC) const {
    if (hidden_bcf_) return hidden_bcf_;
    activate(device, scratch_bcf, BC);  // (ffn.3)
    return scratch_bcf;
  }

  void activate(Device& device, T* hidden_bcf, Index BC) const {
    if (relu_.present()) return relu_.forward(device, hidden_bcf, up_bcf_, BC * F_);
    gelu_forward<Device, T>(device, hidden_bcf, up_bcf_, BC * F_, gelu_form_);
  }
  void activate_backward(Device& device, T* d_up_bcf, const T* d_hidden_bcf, Index BC, Accum<T>* joined_bias_f) const {
    const RowsOf rows{BC, F_};
    if (relu_.present()) return relu_.backward(device, joined_bias_f, d_up_bcf, d_hidden_bcf, up_bcf_, rows);
    if constexpr (Device::joins_layers) {
      if (joined_bias_f) {
        return gelu_backward_with_row_sums<Device, T>(device, joined_bias_f, d_up_bcf, d_hidden_bcf, up_bcf_, rows,
                                                      gelu_form_);
      }
    }
    gelu_backward<Device, T>(device, d_up_bcf, d_hidden_bcf, up_bcf_, BC * F_, gelu_form_);
  }

  Index D_, F_;
  Relu<Device, T> relu_;
  GeluForm gelu_form_;
  Norm<Device, T> norm_;
  Linear<Device, T> up_, down_;
  Residual<Device, T> residual_;
  T* up_bcf_;
  T* hidden_bcf_;
};

}  // namespace abh
