#pragma once

#include <string>

#include "blocks/norm.hpp"
#include "layers/attention.hpp"
#include "layers/linear.hpp"
#include "settings/config.hpp"

namespace abh {

// The dot-product attention block: multi-head softmax attention (Vaswani et al., 2017), the baseline that the other
// mixers are compared with. Chapter: docs/blocks/dot.md.
//
//   h_bcd = layernorm(x_bcd)                                          (dot.1)
//   q, k, v = h query_hd^T, h key_hd^T, h value_hd^T [+ biases]       (dot.2)
//   t_bch = attention(q, k, v)                            (dot.3)
//   y_bcd = t output_dh^T [+ output_bias_d]                           (dot.4)
//   out_bcd = x_bcd + dropout(y_bcd)                                  (dot.5)
//
// Backward, d_y = dropout'(d_out):
//
//   d_t_bch = d_y output_dh                                           (dot.6)
//   d_q, d_k, d_v = attention'(d_t)                       (dot.7)
//   d_h_bcd = d_q query_hd + d_k key_hd + d_v value_hd                (dot.8)
//   d_x_bcd = d_out_bcd + layernorm'(d_h_bcd)                         (dot.9)
//
// Saved: h (unless it is computed again), q, k, v, t and the log-sum-exp of every row of scores. Step by step: a cache
// of keys and values.
template <class Device, class T>
class DotBlock : public Block<Device, T> {
 public:
  DotBlock(Layout<T>& layout, const std::string& prefix, const ModelConfig& config, const BlockExtent& extent,
           const BlockOptions& options)
      : D_(config.channels),
        N_(config.heads),
        K_(config.mixer_head_channels()),
        H_(N_ * K_),
        positions_(extent.positions),
        options_(options),
        norm_(layout, prefix + "norm_", options.norm, D_, extent) {
    const Index BC = extent.B * extent.C;
    // Query, key, value: one (3 H, D) weight.
    query_ = layout.weight(prefix + "query_hd", {H_, D_}, Init::normal, Kind::linear);
    layout.weight(prefix + "key_hd", {H_, D_}, Init::normal, Kind::linear);
    layout.weight(prefix + "value_hd", {H_, D_}, Init::normal, Kind::linear);
    output_ = layout.weight(prefix + "output_dh", {D_, H_}, Init::normal_residual, Kind::linear);
    if (config.attention_bias) {
      query_bias_ = layout.weight(prefix + "query_bias_h", {H_}, Init::zero, Kind::undecayed);
      layout.weight(prefix + "key_bias_h", {H_}, Init::zero, Kind::undecayed);
      layout.weight(prefix + "value_bias_h", {H_}, Init::zero, Kind::undecayed);
      output_bias_ = layout.weight(prefix + "output_bias_d", {D_}, Init::zero, Kind::undecayed);
    }
    qkv_bcq_ = layout.template activation<T>(BC * 3 * H_);
    t_bch_ = layout.template activation<T>(BC * H_);
    lse_bnc_ = layout.template activation<Accum<T>>(BC * N_);
    if (positions_) {
      key_cache_ch_ = layout.template state<T>(positions_ * H_);
      value_cache_ch_ = layout.template state<T>(positions_ * H_);
    }
  }

  void forward(Device& device, T* out_bcd, const T* in_bcd, const Pass& pass) override {
    project(device, out_bcd, in_bcd, pass.BC());
    attention_forward<Device, T>(device, {.out_bch = t_bch_,
                                          .lse_bnc = lse_bnc_,
                                          .query_bch = query(),
                                          .key_bch = key(),
                                          .value_bch = value(),
                                          .query_stride = 3 * H_,
                                          .key_stride = 3 * H_,
                                          .value_stride = 3 * H_,
                                          .mask_bc = pass.mask_bc,
                                          .causal = options_.causal,
                                          .B = pass.B,
                                          .C = pass.C,
                                          .N = N_,
                                          .K = K_});  // (dot.3)
    leave(device, out_bcd, in_bcd, pass);
  }

  void backward(Device& device, T* d_x_bcd, const T* in_bcd, const Pass& pass) override {
    const Index BC = pass.BC();
    typename Device::Scope scratch(device.workspace);
    T* d_y_bcd = scratch.template take<T>(BC * D_);
    T* d_t_bch = scratch.template take<T>(BC * H_);
    T* d_qkv_bcq = scratch.template take<T>(BC * 3 * H_);
    dropout_backward<Device, T>(device, d_y_bcd, d_x_bcd, dropout(pass), BC * D_);
    linear_backward_weight<Device, T>(device, {.d_weight_oi = output_.gradient,
                                               .d_bias_o = output_bias_.gradient,
                                               .d_out_bco = d_y_bcd,
                                               .in_bci = t_bch_,
                                               .BC = BC,
                                               .I = H_,
                                               .O = D_});
    linear_backward_input<Device, T>(device, {.d_in_bci = d_t_bch,
                                              .d_out_bco = d_y_bcd,
                                              .weight_oi = output_.value,
                                              .BC = BC,
                                              .I = H_,
                                              .O = D_});  // (dot.6)
    attention_backward<Device, T>(device, {.d_query_bch = d_qkv_bcq,
                                           .d_key_bch = d_qkv_bcq + H_,
                                           .d_value_bch = d_qkv_bcq + 2 * H_,
                                           .d_query_stride = 3 * H_,
                                           .d_key_stride = 3 * H_,
                                           .d_value_stride = 3 * H_,
                                           .d_out_bch = d_t_bch,
                                           .out_bch = t_bch_,
                                           .lse_bnc = lse_bnc_,
                                           .query_bch = query(),
                                           .key_bch = key(),
                                           .value_bch = value(),
                                           .query_stride = 3 * H_,
                                           .key_stride = 3 * H_,
                                           .value_stride = 3 * H_,
                                           .mask_bc = pass.mask_bc,
                                           .causal = options_.causal,
                                           .B = pass.B,
                                           .C = pass.C,
                                           .N = N_,
                                           .K = K_});  // (dot.7)
    T* d_h_bcd = d_y_bcd;                              // no longer needed
    linear_backward_weight<Device, T>(device, {.d_weight_oi = query_.gradient,
                                               .d_bias_o = query_bias_.gradient,
                                               .d_out_bco = d_qkv_bcq,
                                               .in_bci = norm_.normed(device, d_h_bcd, in_bcd, BC),
                                               .BC = BC,
                                               .I = D_,
                                               .O = 3 * H_});
    linear_backward_input<Device, T>(device, {.d_in_bci = d_h_bcd,
                                              .d_out_bco = d_qkv_bcq,
                                              .weight_oi = query_.value,
                                              .BC = BC,
                                              .I = D_,
                                              .O = 3 * H_});                                      // (dot.8)
    norm_.backward(device, d_x_bcd, d_h_bcd, options_.residual ? d_x_bcd : nullptr, in_bcd, BC);  // (dot.9)
  }

  // Keys and values beyond `position` are never read: there is nothing to forget at the start.
  void step(Device& device, T* out_d, const T* in_d, Index position) override {
    project(device, out_d, in_d, 1);
    device.copy(key_cache_ch_ + position * H_, key(), H_);
    device.copy(value_cache_ch_ + position * H_, value(), H_);
    attention_step<Device, T>(device, {.out_h = t_bch_,
                                       .query_h = query(),
                                       .key_ch = key_cache_ch_,
                                       .value_ch = value_cache_ch_,
                                       .length = position + 1,
                                       .N = N_,
                                       .K = K_});
    leave(device, out_d, in_d, {.B = 1, .C = 1});
  }

 private:
  void project(Device& device, T* room_bcd, const T* in_bcd, Index BC) {
    const T* h_bcd = norm_.forward(device, room_bcd, in_bcd, BC);  // (dot.1)
    linear_forward<Device, T>(device, {.out_bco = qkv_bcq_,
                                       .in_bci = h_bcd,
                                       .weight_oi = query_.value,
                                       .bias_o = query_bias_.value,
                                       .BC = BC,
                                       .I = D_,
                                       .O = 3 * H_});  // (dot.2)
  }

  void leave(Device& device, T* out_bcd, const T* in_bcd, const Pass& pass) {
    linear_forward<Device, T>(device, {.out_bco = out_bcd,
                                       .in_bci = t_bch_,
                                       .weight_oi = output_.value,
                                       .bias_o = output_bias_.value,
                                       .BC = pass.BC(),
                                       .I = H_,
                                       .O = D_});  // (dot.4)
    dropout_forward<Device, T>(device, out_bcd, out_bcd, options_.residual ? in_bcd : nullptr, dropout(pass),
                               pass.BC() * D_);  // (dot.5)
  }

  const T* query() const { return qkv_bcq_; }
  const T* key() const { return qkv_bcq_ + H_; }
  const T* value() const { return qkv_bcq_ + 2 * H_; }
  Dropout dropout(const Pass& pass) const { return dropout_of(pass, options_, sites::LayerUse::mixer); }

  Index D_, N_, K_, H_, positions_;
  BlockOptions options_;
  Norm<Device, T> norm_;
  Weight<T> query_, query_bias_, output_, output_bias_;
  T* qkv_bcq_;
  T* t_bch_;
  Accum<T>* lse_bnc_;
  T* key_cache_ch_ = nullptr;
  T* value_cache_ch_ = nullptr;
};

struct DotMixer {
  static constexpr MixerProperties properties = {.name = "dot",
                                                 .summary = "multi-head softmax attention",
                                                 .golden_case = "dot_product_attention",
                                                 .head_projection = "query_hd",
                                                 .has_cache = true,
                                                 .has_scores = true};
  template <class Device, class T>
  using Type = DotBlock<Device, T>;
};

}  // namespace abh
