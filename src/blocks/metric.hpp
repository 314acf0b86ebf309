#pragma once

#include <string>
#include <type_traits>
#include <vector>

#include "blocks/parts/attention_core.hpp"
#include "blocks/parts/linear.hpp"
#include "blocks/parts/norm.hpp"
#include "blocks/parts/residual.hpp"
#include "layers/metric_key.hpp"
#include "settings/config.hpp"

namespace abh {

// A part of a feature (network/mixers.hpp).
template <class Device, class T>
class Rotary;

// The metric-tensor attention block: one projection p is query and value, and the keys are M p, with a learned matrix M
// per head, metric_nkk'. Scores are p_c^T M p_c' / sqrt(K). M is symmetric and stored packed (metric attention), or
// unconstrained (quadratic attention). Chapter: docs/blocks/metric.md.
//
//   h_bcd = layernorm(x_bcd)                                               (metric.1)
//   p_bch = sum_d h_bcd project_hd                                         (metric.2)
//   key_bcnk = sum_k' metric_nkk' p_bcnk'                                  (metric.3)
//   query_bch = p_bch, or rotary(p_bch) where positions are rotary         (metric.4)
//   key_bch <- rotary(key_bch) where positions are rotary                  (metric.5)
//   t_bch = attention(query_bch, key_bch, p_bch)                           (metric.6)
//   y_bcd = sum_h t_bch output_dh                                          (metric.7)
//   out_bcd = x_bcd + dropout(y_bcd)                                       (metric.8)
//
// Backward; layernorm_backward also adds to the gradients of the weights of the norm:
//
//   d_y_bcd = dropout_backward(d_out_bcd)                                  (metric.9)
//   d_output_dh += sum_bc d_y_bcd t_bch                                    (metric.10)
//   d_t_bch = sum_d d_y_bcd output_dh                                      (metric.11)
//   d_query_bch, d_key_bch, d_value_bch = attention_backward(d_t_bch)      (metric.12)
//   d_query_bch <- rotary_backward(d_query_bch) where positions are rotary   (metric.13)
//   d_key_bch <- rotary_backward(d_key_bch) where positions are rotary     (metric.14)
//   d_p_bch = d_query_bch + d_value_bch                                    (metric.15)
//   d_p_bcnk' += sum_k d_key_bcnk metric_nkk',  d_metric_nkk' += sum_bc d_key_bcnk p_bcnk'   (metric.16)
//   d_project_hd += sum_bc d_p_bch h_bcd                                   (metric.17)
//   d_h_bcd = sum_h d_p_bch project_hd                                     (metric.18)
//   d_x_bcd = d_out_bcd + layernorm_backward(d_h_bcd)                      (metric.19)
//
// In a packed metric, metric_nkk' and metric_nk'k are one number. Its gradient is the sum of both gradients.
//
// Saved: h (unless recomputed), p, key, t, the log-sum-exp of the scores, and rotated queries. Decoding caches p, half
// the size of a KV cache. With rotary positions it caches p and the keys.
template <class Device, class T>
class MetricBlock : public Block<Device, T> {
 public:
  MetricBlock(Layout<T>& layout, const std::string& prefix, const ModelConfig& config, const BlockCapacity& capacity,
              const BlockOptions& options, MetricForm form = MetricForm::packed)
      : D_(config.channels),
        N_(config.heads),
        K_(config.mixer_head_channels()),
        H_(N_ * K_),
        form_(form),
        norm_(layout, prefix + "norm_", options.norm, D_, capacity),
        project_(layout, prefix, {"project_hd"}, H_, D_, Init::normal),
        metric_(form == MetricForm::packed
                    ? layout.weight(prefix + "metric_nl", {N_, K_ * (K_ + 1) / 2}, Init::identity_packed, Kind::decayed)
                    : layout.weight(prefix + "metric_nkk", {N_, K_, K_}, Init::identity_full, Kind::decayed)),
        output_(layout, prefix, {"output_dh"}, D_, H_, Init::normal_residual),
        residual_(options, sites::LayerUse::mixer, D_),
        p_bch_(layout.template activation<T>(capacity.B * capacity.C * H_)),
        rotary_(layout, config, capacity, N_),
        query_bch_(rotary_.present() ? layout.template activation<T>(capacity.B * capacity.C * H_) : p_bch_),
        key_bch_(layout.template activation<T>(capacity.B * capacity.C * H_)),
        core_(layout, config, options, capacity, rotary_.present(), 0, {}, {layout, prefix, config}) {}

  void forward(Device& device, T* out_bcd, const T* in_bcd, const PassContext& pass) override {
    project_input(device, p_bch_, out_bcd, in_bcd, pass);
    metric_key_forward<Device, T>(device, key_bch_, inputs(p_bch_, pass.BC()));  // (metric.3)
    rotary_.forward(device, query_bch_, p_bch_, pass);                           // (metric.4)
    rotary_.forward(device, key_bch_, key_bch_, pass);                           // (metric.5)
    core_.forward(device, rows(), pass);                                         // (metric.6)
    project_output(device, out_bcd, in_bcd, pass);
  }

  void backward(Device& device, T* d_x_bcd, const T* in_bcd, const PassContext& pass) override {
    const Index BC = pass.BC();
    typename Device::Scope scratch(device.workspace);
    T* d_y_bcd = scratch.template take<T>(BC * D_);
    T* d_t_bch = scratch.template take<T>(BC * H_);
    T* d_query_bch = scratch.template take<T>(BC * H_);
    T* d_key_bch = scratch.template take<T>(BC * H_);
    T* d_value_bch = scratch.template take<T>(BC * H_);
    T* d_p_bch = d_query_bch;  // the other gradients are added here
    // The side stream may still read d_y when d_h is written. Without a side stream, d_h can reuse d_y.
    T* d_h_bcd = Device::SideStream::runs_beside ? scratch.template take<T>(BC * D_) : d_y_bcd;
    typename Device::SideStream weights(device);  // weight gradients run concurrently

    residual_.backward(device, d_y_bcd, d_x_bcd, pass);                                    // (metric.9)
    output_.backward_weight(weights.fork(), d_y_bcd, core_.t_bch(), BC);                   // (metric.10)
    output_.backward_input(device, d_t_bch, d_y_bcd, BC);                                  // (metric.11)
    core_.backward(device, {d_query_bch, d_key_bch, d_value_bch}, d_t_bch, rows(), pass);  // (metric.12)
    rotary_.backward(device, d_query_bch, d_query_bch, pass);                              // (metric.13)
    rotary_.backward(device, d_key_bch, d_key_bch, pass);                                  // (metric.14)
    add<Device, T>(device, d_p_bch, d_value_bch, d_query_bch, BC * H_);                    // (metric.15)
    backward_key(device, d_p_bch, d_key_bch, BC);                                          // (metric.16)
    const T* h_bcd = norm_.normed(device, d_h_bcd, in_bcd, BC);
    project_.backward_weight(weights.fork(), d_p_bch, h_bcd, BC);  // (metric.17)
    if (h_bcd == d_h_bcd) weights.join();                          // h_bcd was recomputed into d_h_bcd
    project_.backward_input(device, d_h_bcd, d_p_bch, BC);         // (metric.18)
    norm_.backward(device, d_x_bcd, d_h_bcd, residual_.around(d_x_bcd), in_bcd, BC);  // (metric.19)
  }

  void inspect(Device& device, const Inspector& inspector, const T* out_bcd, const PassContext& pass) const override {
    const std::vector<Index> bcd = {pass.B, pass.C, D_};
    report(device, inspector, "h_bcd", norm_.saved(), bcd, D_);
    inspect_metric(device, inspector);
    core_.inspect(device, inspector, rows(), "p_bch", pass);
    report(device, inspector, "out_bcd", out_bcd, bcd, D_);
  }

  void reset(Device& device) override { core_.reset(device); }
  void continue_after_prefill(Device& device, Index positions) override {
    core_.continue_after_prefill(device, positions);
  }
  void decode(Device& device, T* out_d, const T* in_d, Index position) override {
    T* p_h = core_.value_h(position);
    project_input(device, p_h, out_d, in_d, one_position);
    if (rotary_.present()) {
      // A key that is rotated by its own position cannot be computed from p in a later step, so keys have a cache.
      T* key_h = core_.key_h(position);
      metric_key_forward<Device, T>(device, key_h, inputs(p_h, 1));
      rotary_.forward(device, query_bch_, p_h, step_at(position));
      rotary_.forward(device, key_h, key_h, step_at(position));
      core_.decode(device, query_bch_, position);
    } else {
      metric_query_step<Device, T>(device, key_bch_, inputs(p_h, 1));
      core_.decode(device, key_bch_, position);
    }
    project_output(device, out_d, in_d, one_position);
  }

 private:
  void project_input(Device& device, T* p_bch, T* scratch_bcd, const T* in_bcd, const PassContext& pass) {
    const T* h_bcd = norm_.forward(device, scratch_bcd, in_bcd, pass.BC());  // (metric.1)
    project_.forward(device, p_bch, h_bcd, pass.BC());                       // (metric.2)
  }

  // Reports the full matrix of each head. Row k of a packed matrix has K - k numbers, the columns k' >= k.
  void inspect_metric(Device& device, const Inspector& inspector) const {
    if constexpr (std::is_constructible_v<double, T>) {
      const Index size = form_ == MetricForm::packed ? K_ * (K_ + 1) / 2 : K_ * K_;
      const std::vector<double> held = on_host<double>(device, metric_.value, N_, size);
      std::vector<double> metric_nkk;
      for (Index n = 0; n < N_; ++n) {
        for (Index k = 0; k < K_; ++k) {
          for (Index l = 0; l < K_; ++l) {
            const Index low = k < l ? k : l, high = k < l ? l : k;
            const Index at = form_ == MetricForm::packed ? low * K_ - low * (low - 1) / 2 + high - low : k * K_ + l;
            metric_nkk.push_back(held[static_cast<std::size_t>(n * size + at)]);
          }
        }
      }
      inspector("metric_nkk", {N_, K_, K_}, metric_nkk);
    }
  }

  void project_output(Device& device, T* out_bcd, const T* in_bcd, const PassContext& pass) {
    output_.forward(device, out_bcd, core_.t_bch(), pass.BC());  // (metric.7)
    residual_.forward(device, out_bcd, out_bcd, in_bcd, pass);   // (metric.8)
  }

  QueryKeyValue<const T> rows() const { return {query_bch_, key_bch_, p_bch_}; }

  MetricKeyInputs<T> inputs(const T* p_bch, Index BC) const { return {p_bch, metric_.value, form_, BC, N_, K_}; }
  void backward_key(Device& device, T* d_p_bch, const T* d_key_bch, Index BC) const {
    metric_key_backward<Device, T>(
        device,
        {.d_project_bch = d_p_bch, .d_metric = metric_.gradient, .d_key_bch = d_key_bch, .in = inputs(p_bch_, BC)});
  }

  Index D_, N_, K_, H_;
  MetricForm form_;
  Norm<Device, T> norm_;
  Linear<Device, T> project_;
  Weight<T> metric_;
  Linear<Device, T> output_;
  Residual<Device, T> residual_;
  T* p_bch_;
  Rotary<Device, T> rotary_;
  T* query_bch_;  // p_bch_ without rotary positions
  T* key_bch_;
  AttentionCore<Device, T> core_;
};

struct MetricMixer {
  static constexpr MixerProperties properties = {.name = "metric",
                                                 .summary = "attention with one projection and a symmetric metric",
                                                 .golden_case = "metric_attention",
                                                 .head_projection = "project_hd",
                                                 .has_cache = true,
                                                 .has_scores = true,
                                                 .in_chunks = true,
                                                 .options = "span rotary"};
  template <class Device, class T>
  using Type = MetricBlock<Device, T>;
};

// Metric attention with an unconstrained matrix.
template <class Device, class T>
class QuadraticBlock : public MetricBlock<Device, T> {
 public:
  QuadraticBlock(Layout<T>& layout, const std::string& prefix, const ModelConfig& config, const BlockCapacity& capacity,
                 const BlockOptions& options)
      : MetricBlock<Device, T>(layout, prefix, config, capacity, options, MetricForm::full) {}
};

struct QuadraticMixer {
  static constexpr MixerProperties properties = {.name = "quadratic",
                                                 .summary = "attention with one projection and an unconstrained metric",
                                                 .golden_case = "quadratic_attention",
                                                 .head_projection = "project_hd",
                                                 .has_cache = true,
                                                 .has_scores = true,
                                                 .in_chunks = true,
                                                 .options = "span rotary"};
  template <class Device, class T>
  using Type = QuadraticBlock<Device, T>;
};

}  // namespace abh
