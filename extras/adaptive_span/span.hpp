#pragma once

#include <algorithm>
#include <cmath>
#include <string>

#include "blocks/block.hpp"
#include "extras/adaptive_span/adaptive_span.hpp"
#include "layers/attention.hpp"
#include "settings/config.hpp"

namespace abh {

// Learned spans of the heads of an attention block, and the fields of its attention mask. Without learned spans it uses
// no memory and does not change the attention mask.
template <class Device, class T>
class Span {
 public:
  // Largest window of a head; 0: no limit.
  static Index reach(const ModelConfig& config) {
    return config.extras.span > 0 ? config.extras.span + static_cast<Index>(std::ceil(config.extras.ramp)) : 0;
  }

  Span() = default;
  Span(Layout<T>& layout, const std::string& prefix, const ModelConfig& config)
      : present_(config.extras.span > 0), N_(config.heads), ramp_(config.extras.ramp), penalty_(config.extras.penalty) {
    if (!present_) return;
    span_n_ = layout.weight(prefix + "span_n", {N_}, Init::zero, Kind::span, static_cast<double>(config.extras.span));
  }

  // Called after window and distances of the attention mask are set. An existing bias is added to the span masks.
  void claim(Layout<T>& layout, AttentionMask<Accum<T>>& mask) {
    if (!present_) return;
    distances_ = mask.distances;
    base_np_ = mask.distance_bias_nc;
    mask.distance_bias_nc = bias_np_ = layout.template persistent_activation<Accum<T>>(N_ * distances_);
    mask.window_n = reach_n_ = layout.template persistent_activation<Index>(N_);
    first_n_ = layout.template persistent_activation<Index>(N_);
  }

  // Computes windows and biases from the current spans. Called before attention_forward and before inference.
  void forward(Device& device) const {
    if (!present_) return;
    adaptive_span_forward<Device, T>(
        device, {.distance_bias_np = bias_np_, .reach_n = reach_n_, .first_n = first_n_, .in = inputs()});
  }

  void inspect(Device& device, const Inspector& inspector) const {
    if (present_) report(device, inspector, "span_n", span_n_.value, {N_}, N_);
  }

  // Accumulates the gradient of the spans. a: the arguments of attention_backward. The penalty counts once per step.
  void backward(Device& device, const AttentionBackward<T>& a, const PassContext& pass) const {
    if (!present_) return;
    typename Device::Scope scratch(device.workspace);
    Accum<T>* d_bias_np = scratch.template take<Accum<T>>(N_ * distances_);
    attention_bias_backward<Device, T>(device, {.d_distance_bias_np = d_bias_np,
                                                .first_n = first_n_,
                                                .most = std::min(static_cast<Index>(std::ceil(ramp_)), distances_),
                                                .d_out_bch = a.d_out_bch,
                                                .out_bch = a.out_bch,
                                                .lse_bnc = a.lse_bnc,
                                                .in = a.in});
    const bool first = pass.first_b == 0 && pass.first_c == 0;
    adaptive_span_backward<Device, T>(device, {.d_span_n = span_n_.gradient,
                                               .d_distance_bias_np = d_bias_np,
                                               .penalty = first ? penalty_ : 0,
                                               .in = inputs()});
  }

 private:
  AdaptiveSpan<T> inputs() const {
    return {.span_n = span_n_.value, .ramp = ramp_, .base_np = base_np_, .N = N_, .distances = distances_};
  }

  bool present_ = false;
  Index N_ = 0, distances_ = 0;
  double ramp_ = 1, penalty_ = 0;
  Weight<T> span_n_{};
  const Accum<T>* base_np_ = nullptr;
  Accum<T>* bias_np_ = nullptr;
  Index *reach_n_ = nullptr, *first_n_ = nullptr;
};

}  // namespace abh
