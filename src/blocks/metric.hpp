#pragma once

#include <string>

#include "blocks/norm.hpp"
#include "layers/attention.hpp"
#include "layers/linear.hpp"
#include "layers/metric_attention.hpp"
#include "settings/config.hpp"

namespace abh {

// The metric-tensor attention block: one projection p serves as query, key and value, and scores are p_c^T M p_c' with
// a learned M a head: symmetric and stored packed (metric attention), or free (quadratic attention). Chapter:
// docs/blocks/metric.md.
//
//   h_bcd = layernorm(x_bcd)                                          (metric.1)
//   p_bch = h project_hd^T                                            (metric.2)
//   k_bch = M p, head by head                                         (metric.3)
//   t_bch = attention(query p, key k, value p)            (metric.4)
//   y_bcd = t output_dh^T                                             (metric.5)
//   out_bcd = x_bcd + dropout(y_bcd)                                  (metric.6)
//
// Backward, d_y = dropout'(d_out):
//
//   d_t_bch = d_y output_dh                                           (metric.7)
//   d_query, d_k, d_value = attention'(d_t)               (metric.8)
//   d_p_bch = d_query + d_value + metric_key'(d_k)                    (metric.9)
//   d_h_bcd = d_p project_hd                                          (metric.10)
//   d_x_bcd = d_out_bcd + layernorm'(d_h_bcd)                         (metric.11)
//
// Saved: h (unless it is computed again), p, k, t and the log-sum-exp of every row of scores. Step by step: a cache of
// p alone, half of what keys and values take.
template <class Device, class T>
class MetricBlock : public Block<Device, T> {
 public:
  MetricBlock(Layout<T>& layout, const std::string& prefix, const ModelConfig& config, const BlockExtent& extent,
              const BlockOptions& options, MetricForm form = MetricForm::packed)
      : D_(config.channels),
        N_(config.heads),
        K_(config.mixer_head_channels()),
        H_(N_ * K_),
        positions_(extent.positions),
        form_(form),
        options_(options),
        norm_(layout, prefix + "norm_", options.norm, D_, extent) {
    const Index BC = extent.B * extent.C;
    project_ = layout.weight(prefix + "project_hd", {H_, D_}, Init::normal, Kind::linear);
    if (form == MetricForm::packed) {
      metric_ = layout.weight(prefix + "metric_nl", {N_, K_ * (K_ + 1) / 2}, Init::identity_packed, Kind::decayed);
    } else {
      metric_ = layout.weight(prefix + "metric_nkk", {N_, K_, K_}, Init::identity_full, Kind::decayed);
    }
    output_ = layout.weight(prefix + "output_dh", {D_, H_}, Init::normal_residual, Kind::linear);
    p_bch_ = layout.template activation<T>(BC * H_);
    key_bch_ = layout.template activation<T>(BC * H_);
    t_bch_ = layout.template activation<T>(BC * H_);
    lse_bnc_ = layout.template activation<Accum<T>>(BC * N_);
    if (positions_) cache_ch_ = layout.template state<T>(positions_ * H_);
  }

  void forward(Device& device, T* out_bcd, const T* in_bcd, const Pass& pass) override {
    project(device, p_bch_, out_bcd, in_bcd, pass.BC());
    metric_key_forward<Device, T>(device, key_bch_, p_bch_, metric_.value, form_, pass.BC(), N_, K_);  // (metric.3)
    attention_forward<Device, T>(device, {.out_bch = t_bch_,
                                          .lse_bnc = lse_bnc_,
                                          .query_bch = p_bch_,
                                          .key_bch = key_bch_,
                                          .value_bch = p_bch_,
                                          .mask_bc = pass.mask_bc,
                                          .causal = options_.causal,
                                          .B = pass.B,
                                          .C = pass.C,
                                          .N = N_,
                                          .K = K_});  // (metric.4)
    leave(device, out_bcd, in_bcd, pass);
  }

  void backward(Device& device, T* d_x_bcd, const T* in_bcd, const Pass& pass) override {
    const Index BC = pass.BC();
    typename Device::Scope scratch(device.workspace);
    T* d_y_bcd = scratch.template take<T>(BC * D_);
    T* d_t_bch = scratch.template take<T>(BC * H_);
    T* d_p_bch = scratch.template take<T>(BC * H_);
    T* d_key_bch = scratch.template take<T>(BC * H_);
    T* d_value_bch = scratch.template take<T>(BC * H_);
    dropout_backward<Device, T>(device, d_y_bcd, d_x_bcd, dropout(pass), BC * D_);
    linear_backward_weight<Device, T>(
        device, {.d_weight_oi = output_.gradient, .d_out_bco = d_y_bcd, .in_bci = t_bch_, .BC = BC, .I = H_, .O = D_});
    linear_backward_input<Device, T>(device, {.d_in_bci = d_t_bch,
                                              .d_out_bco = d_y_bcd,
                                              .weight_oi = output_.value,
                                              .BC = BC,
                                              .I = H_,
                                              .O = D_});  // (metric.7)
    attention_backward<Device, T>(device, {.d_query_bch = d_p_bch,
                                           .d_key_bch = d_key_bch,
                                           .d_value_bch = d_value_bch,
                                           .d_out_bch = d_t_bch,
                                           .out_bch = t_bch_,
                                           .lse_bnc = lse_bnc_,
                                           .query_bch = p_bch_,
                                           .key_bch = key_bch_,
                                           .value_bch = p_bch_,
                                           .mask_bc = pass.mask_bc,
                                           .causal = options_.causal,
                                           .B = pass.B,
                                           .C = pass.C,
                                           .N = N_,
                                           .K = K_});                                       // (metric.8)
    dropout_forward<Device, T>(device, d_p_bch, d_value_bch, d_p_bch, Dropout{}, BC * H_);  // (metric.9)
    metric_key_backward<Device, T>(device, {.d_project_bch = d_p_bch,
                                            .d_metric = metric_.gradient,
                                            .d_key_bch = d_key_bch,
                                            .project_bch = p_bch_,
                                            .metric = metric_.value,
                                            .form = form_,
                                            .BC = BC,
                                            .N = N_,
                                            .K = K_});
    T* d_h_bcd = d_y_bcd;  // no longer needed
    linear_backward_weight<Device, T>(device, {.d_weight_oi = project_.gradient,
                                               .d_out_bco = d_p_bch,
                                               .in_bci = norm_.normed(device, d_h_bcd, in_bcd, BC),
                                               .BC = BC,
                                               .I = D_,
                                               .O = H_});
    linear_backward_input<Device, T>(device, {.d_in_bci = d_h_bcd,
                                              .d_out_bco = d_p_bch,
                                              .weight_oi = project_.value,
                                              .BC = BC,
                                              .I = D_,
                                              .O = H_});                                          // (metric.10)
    norm_.backward(device, d_x_bcd, d_h_bcd, options_.residual ? d_x_bcd : nullptr, in_bcd, BC);  // (metric.11)
  }

  // Rows beyond `position` are never read: there is nothing to forget at the start.
  void step(Device& device, T* out_d, const T* in_d, Index position) override {
    T* p_h = cache_ch_ + position * H_;
    project(device, p_h, out_d, in_d, 1);
    metric_query_step<Device, T>(device, key_bch_, p_h, metric_.value, form_, N_, K_);
    attention_step<Device, T>(device, {.out_h = t_bch_,
                                       .query_h = key_bch_,
                                       .key_ch = cache_ch_,
                                       .value_ch = cache_ch_,
                                       .length = position + 1,
                                       .N = N_,
                                       .K = K_});
    leave(device, out_d, in_d, {.B = 1, .C = 1});
  }

 private:
  void project(Device& device, T* p_bch, T* room_bcd, const T* in_bcd, Index BC) {
    const T* h_bcd = norm_.forward(device, room_bcd, in_bcd, BC);  // (metric.1)
    linear_forward<Device, T>(
        device,
        {.out_bco = p_bch, .in_bci = h_bcd, .weight_oi = project_.value, .BC = BC, .I = D_, .O = H_});  // (metric.2)
  }

  void leave(Device& device, T* out_bcd, const T* in_bcd, const Pass& pass) {
    linear_forward<Device, T>(device, {.out_bco = out_bcd,
                                       .in_bci = t_bch_,
                                       .weight_oi = output_.value,
                                       .BC = pass.BC(),
                                       .I = H_,
                                       .O = D_});  // (metric.5)
    dropout_forward<Device, T>(device, out_bcd, out_bcd, options_.residual ? in_bcd : nullptr, dropout(pass),
                               pass.BC() * D_);  // (metric.6)
  }

  Dropout dropout(const Pass& pass) const { return dropout_of(pass, options_, sites::LayerUse::mixer); }

  Index D_, N_, K_, H_, positions_;
  MetricForm form_;
  BlockOptions options_;
  Norm<Device, T> norm_;
  Weight<T> project_, metric_, output_;
  T* p_bch_;
  T* key_bch_;
  T* t_bch_;
  Accum<T>* lse_bnc_;
  T* cache_ch_ = nullptr;
};

struct MetricMixer {
  static constexpr MixerProperties properties = {.name = "metric",
                                                 .summary = "one projection, compared in a learned metric",
                                                 .golden_case = "metric_attention",
                                                 .head_projection = "project_hd",
                                                 .has_cache = true,
                                                 .has_scores = true};
  template <class Device, class T>
  using Type = MetricBlock<Device, T>;
};

// The same with a free matrix in the place of the metric.
template <class Device, class T>
class QuadraticBlock : public MetricBlock<Device, T> {
 public:
  QuadraticBlock(Layout<T>& layout, const std::string& prefix, const ModelConfig& config, const BlockExtent& extent,
                 const BlockOptions& options)
      : MetricBlock<Device, T>(layout, prefix, config, extent, options, MetricForm::full) {}
};

struct QuadraticMixer {
  static constexpr MixerProperties properties = {.name = "quadratic",
                                                 .summary = "the same with a free matrix in the metric's place",
                                                 .golden_case = "quadratic_attention",
                                                 .head_projection = "project_hd",
                                                 .has_cache = true,
                                                 .has_scores = true};
  template <class Device, class T>
  using Type = QuadraticBlock<Device, T>;
};

}  // namespace abh
