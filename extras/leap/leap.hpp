#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <type_traits>
#include <vector>

#include "blocks/parts/linear.hpp"
#include "blocks/parts/norm.hpp"
#include "blocks/parts/pooling.hpp"
#include "blocks/parts/positions.hpp"
#include "blocks/parts/residual.hpp"
#include "extras/leap/leap_gate.hpp"
#include "extras/leap/leap_logits.hpp"
#include "extras/positions/rescale_rows.hpp"
#include "plain/plain.hpp"
#include "settings/config.hpp"

namespace abh {

// Leap block, after LEAP (github.com/mtanghu/LEAP). The logit of a position is the product of its focus and its key.
// Keys and values are averaged with these weights. The gate of the averaged value depends on the query and the averaged
// key. The cost of an inference step does not depend on the length of the past. Chapter: extras/leap/README.md.
//
//   h_bcd = layernorm(x_bcd)                                                             (leap.1)
//   query_bcd = sum_d' h_bcd' query_dd',  focus_bcd = sum_d' h_bcd' focus_dd',
//   key_bcd = sum_d' h_bcd' key_dd',  value_bcd = sum_d' h_bcd' value_dd'                (leap.2)
//   query_bcd, focus_bcd, key_bcd = rescale(query_bcd, focus_bcd, key_bcd)     rescaled,
//   value_bcd = rescale(value_bcd)                                             normed values   (leap.3)
//   a_bnc = leap_logits(focus_bcd, key_bcd)                                              (leap.4)
//   pooled_key_bcd, pooled_value_bcd = pool(a_bnc, (key_bcd, value_bcd))                 (leap.5)
//   y_bcd = leap_gate(query_bcd, pooled_key_bcd, pooled_value_bcd)                       (leap.6)
//   out_bcd = x_bcd + dropout(y_bcd)                                                     (leap.7)
//
// Dot products of two heads are multiplied by 1 / sqrt(K), or by rescale / K for rescaled heads.
//
// Backward pass. layernorm_backward also accumulates the gradients of the norm's weights. d_lse_bnc is the gradient of
// the logarithm of the pooled weight:
//
//   d_y_bcd = dropout_backward(d_out_bcd)                                                (leap.8)
//   d_query_bcd, d_pooled_key_bcd, d_pooled_value_bcd, d_lse_bnc = leap_gate_backward(d_y_bcd)   (leap.9)
//   d_key_bcd, d_value_bcd, d_a_bnc = pool_backward(d_pooled_key_bcd, d_pooled_value_bcd, d_lse_bnc)   (leap.10)
//   d_focus_bcd = leap_logits_backward(d_a_bnc),  d_key_bcd += leap_logits_backward(d_a_bnc)   (leap.11)
//   d_query_bcd, ... = rescale_backward(d_query_bcd, ...)  of what is rescaled           (leap.12)
//   d_query_dd' += sum_bc d_query_bcd h_bcd',  d_focus_dd' += sum_bc d_focus_bcd h_bcd',
//   d_key_dd' += sum_bc d_key_bcd h_bcd',  d_value_dd' += sum_bc d_value_bcd h_bcd'      (leap.13)
//   d_h_bcd' = sum_d (d_query_bcd query_dd' + d_focus_bcd focus_dd' + d_key_bcd key_dd'
//                     + d_value_bcd value_dd')                                           (leap.14)
//   d_x_bcd = d_out_bcd + layernorm_backward(d_h_bcd)                                    (leap.15)
//
// Saved: query, focus, key, value, both averages, logits, maxima, sums, h (unless recomputed), and the deviations of
// rescaled rows. Inference: the state of the pooling.
template <class Device, class T>
class LeapBlock : public Block<Device, T> {
 public:
  LeapBlock(Layout<T>& layout, const std::string& prefix, const ModelConfig& config, const BlockCapacity& capacity,
            const BlockOptions& options)
      : D_(config.channels),
        N_(config.heads),
        K_(D_ / N_),
        form_(config.leap.focus == "elu" ? FocusForm::elu : FocusForm::exp),
        scale_(config.rescale > 0 ? config.rescale / static_cast<double>(K_) : 1 / std::sqrt(static_cast<double>(K_))),
        first_rescaled_(config.rescale > 0 ? 0 : 3),
        norm_(layout, prefix + "norm_", options.norm, D_, capacity),
        maps_(layout, prefix, {"query_dd", "focus_dd", "key_dd", "value_dd"}, D_, D_, Init::normal),
        residual_(options, sites::LayerUse::mixer, D_),
        row_bcq_(layout.template activation<T>(capacity.B * capacity.C * row_size())),
        logit_bnc_(layout.template activation<Accum<T>>(capacity.B * capacity.C * N_)),
        pooling_(layout,
                 {.B = capacity.B,
                  .C = capacity.C,
                  .N = N_,
                  .K = K_,
                  .window = options.window,
                  .causal = options.causal,
                  .payloads = 2},
                 config.has_alibi(), alibi_slopes(layout, config), capacity),
        rescale_(layout, rescaled(config) > 0, capacity, rescaled(config) * N_, K_, row_size()) {}

  void forward(Device& device, T* out_bcd, const T* in_bcd, const PassContext& pass) override {
    run(device, out_bcd, in_bcd, pass,
        [&](Pooling<Device, T>& pooling) { pooling.forward(device, logit_bnc_, payload(), pass); });
  }

  void backward(Device& device, T* d_x_bcd, const T* in_bcd, const PassContext& pass) override {
    const Index BC = pass.BC();
    typename Device::Scope scratch(device.workspace);
    T* d_y_bcd = scratch.template take<T>(BC * D_);
    T* d_row_bcq = scratch.template take<T>(BC * row_size());
    T* d_h_bcd = d_y_bcd;                         // d_h is written only after the last use of d_y
    typename Device::SideStream weights(device);  // computes gradients of weights concurrently
    const Payload<T> d_payload{d_row_bcq + 2 * D_, row_size()};

    residual_.backward(device, d_y_bcd, d_x_bcd, pass);  // (leap.8)
    {
      typename Device::Scope pooled(device.workspace);
      T* d_pooled_bcq = pooled.template take<T>(BC * 2 * D_);
      Accum<T>* d_lse_bnc = pooled.template take<Accum<T>>(BC * N_);
      Accum<T>* d_a_bnc = pooled.template take<Accum<T>>(BC * N_);
      gate_backward(device, d_row_bcq, d_pooled_bcq, d_lse_bnc, d_y_bcd, pass);                  // (leap.9)
      pooling_.backward(device, d_payload, false, d_a_bnc, d_pooled_bcq, d_lse_bnc, logit_bnc_,  // (leap.10)
                        payload(), pass);
      logits_backward(device, d_row_bcq, d_a_bnc, pass);  // (leap.11)
    }
    rescale_.backward(device, d_row_bcq + first_rescaled_ * D_, row_bcq_ + first_rescaled_ * D_, BC);  // (leap.12)
    const T* h_bcd = norm_.normed(device, d_h_bcd, in_bcd, BC);
    maps_.backward_weight(weights.fork(), d_row_bcq, h_bcd, BC);  // (leap.13)
    if (h_bcd == d_h_bcd) weights.join();                         // h was recomputed into the array of d_h
    maps_.backward_input(device, d_h_bcd, d_row_bcq, BC);         // (leap.14)
    norm_.backward(device, d_x_bcd, d_h_bcd, residual_.around(d_x_bcd), in_bcd, BC);  // (leap.15)
  }

  void reset(Device& device) override { pooling_.reset(device); }
  void continue_after_prefill(Device& device, Index positions) override {
    pooling_.continue_after_prefill(device, positions);
  }

  void inspect(Device& device, const Inspector& inspector, const T* out_bcd, const PassContext& pass) const override {
    const std::vector<Index> bcd = {pass.B, pass.C, D_};
    report(device, inspector, "h_bcd", norm_.saved(), bcd, D_);
    report(device, inspector, "query_bcd", static_cast<const T*>(row_bcq_), bcd, D_, row_size());
    report(device, inspector, "focus_bcd", focus_bcd(), bcd, D_, row_size());
    report(device, inspector, "key_bcd", key_bcd(), bcd, D_, row_size());
    report(device, inspector, "value_bcd", key_bcd() + D_, bcd, D_, row_size());
    report(device, inspector, "a_bnc", logit_bnc_, {pass.B, N_, pass.C}, pass.C);
    pooling_.inspect_weights(device, inspector, "weight_bncs", logit_bnc_, pass);
    report(device, inspector, "pooled_key_bcd", pooling_.out_bch(), bcd, D_, 2 * D_);
    report(device, inspector, "pooled_value_bcd", pooling_.out_bch() + D_, bcd, D_, 2 * D_);
    inspect_gate(device, inspector, pass);
    report(device, inspector, "out_bcd", out_bcd, bcd, D_);
  }

  void decode(Device& device, T* out_d, const T* in_d, Index) override {
    run(device, out_d, in_d, one_position,
        [&](Pooling<Device, T>& pooling) { pooling.decode(device, logit_bnc_, payload().x_bch); });
  }

 private:
  // Gate of the averaged value: the output of the gate for values of 1, computed by the plain loops on the host.
  void inspect_gate(Device& device, const Inspector& inspector, const PassContext& pass) const {
    using A = Accum<T>;
    if constexpr (std::is_constructible_v<double, A>) {
      const Index B = pass.B, C = pass.C, BC = pass.BC();
      const LeapGateInputs<T> saved = gate_in(pass);
      const std::vector<A> query = on_host<A>(device, saved.query_bch, BC, D_, saved.query_stride);
      std::vector<A> pooled = on_host<A>(device, saved.pooled_bcq, BC, 2 * D_);
      for (Index bc = 0; bc < BC; ++bc) std::fill_n(pooled.begin() + (2 * bc + 1) * D_, D_, A(1));
      const std::vector<A> max = on_host<A>(device, saved.max_bnc, B * N_, C);
      const std::vector<A> sum = on_host<A>(device, saved.sum_bnc, B * N_, C);
      std::vector<A> out(static_cast<std::size_t>(BC * D_));
      PlainDevice plain;
      leap_gate_forward<PlainDevice, A>(plain, {.out_bch = out.data(),
                                                .in = {.query_bch = query.data(),
                                                       .pooled_bcq = pooled.data(),
                                                       .max_bnc = max.data(),
                                                       .sum_bnc = sum.data(),
                                                       .scale = saved.scale,
                                                       .B = B,
                                                       .C = C,
                                                       .N = N_,
                                                       .K = K_}});
      std::vector<double> passed_bcn;
      for (Index i = 0; i < BC * D_; i += K_)
        passed_bcn.push_back(static_cast<double>(out[static_cast<std::size_t>(i)]));
      inspector("passed_bcn", {B, C, N_}, passed_bcn);
    }
  }

  // Forward computation, shared by passes and inference, which pool differently.
  template <class Pool>
  void run(Device& device, T* out_bcd, const T* in_bcd, const PassContext& pass, const Pool& pool) {
    const Index BC = pass.BC();
    const T* h_bcd = norm_.forward(device, out_bcd, in_bcd, BC);                               // (leap.1)
    maps_.forward(device, row_bcq_, h_bcd, BC);                                                // (leap.2)
    rescale_.forward(device, row_bcq_ + first_rescaled_ * D_, BC);                             // (leap.3)
    leap_logits_forward<Device, T>(device, {.logit_bnc = logit_bnc_, .in = logits_in(pass)});  // (leap.4)
    pool(pooling_);                                                                            // (leap.5)
    leap_gate_forward<Device, T>(device, {.out_bch = out_bcd, .in = gate_in(pass)});           // (leap.6)
    residual_.forward(device, out_bcd, out_bcd, in_bcd, pass);                                 // (leap.7)
  }

  // A row holds query, focus, key and value, D channels each. Keys and values are pooled.
  Index row_size() const { return 4 * D_; }
  const T* focus_bcd() const { return row_bcq_ + D_; }
  const T* key_bcd() const { return row_bcq_ + 2 * D_; }
  Payload<const T> payload() const { return {key_bcd(), row_size()}; }

  // Number of rescaled arrays among query, focus, key and value; these arrays are adjacent in a row.
  static Index rescaled(const ModelConfig& config) {
    return (config.rescale > 0 ? 3 : 0) + (config.leap.normed_values ? 1 : 0);
  }

  LeapLogitsInputs<T> logits_in(const PassContext& pass) const {
    return {.focus_bch = focus_bcd(),
            .key_bch = key_bcd(),
            .stride = row_size(),
            .form = form_,
            .scale = scale_,
            .B = pass.B,
            .C = pass.C,
            .N = N_,
            .K = K_};
  }

  void logits_backward(Device& device, T* d_row_bcq, const Accum<T>* d_logit_bnc, const PassContext& pass) {
    leap_logits_backward<Device, T>(device, {.d_focus_bch = d_row_bcq + D_,
                                             .d_key_bch = d_row_bcq + 2 * D_,
                                             .d_stride = row_size(),
                                             .d_logit_bnc = d_logit_bnc,
                                             .logit_bnc = logit_bnc_,
                                             .in = logits_in(pass)});
  }

  LeapGateInputs<T> gate_in(const PassContext& pass) const {
    return {.query_bch = row_bcq_,
            .query_stride = row_size(),
            .pooled_bcq = pooling_.out_bch(),
            .max_bnc = pooling_.max_bnc(),
            .sum_bnc = pooling_.sum_bnc(),
            .scale = scale_,
            .B = pass.B,
            .C = pass.C,
            .N = N_,
            .K = K_};
  }

  void gate_backward(Device& device, T* d_row_bcq, T* d_pooled_bcq, Accum<T>* d_lse_bnc, const T* d_y_bcd,
                     const PassContext& pass) {
    leap_gate_backward<Device, T>(device, {.d_query_bch = d_row_bcq,
                                           .d_query_stride = row_size(),
                                           .d_pooled_bcq = d_pooled_bcq,
                                           .d_lse_bnc = d_lse_bnc,
                                           .d_out_bch = d_y_bcd,
                                           .in = gate_in(pass)});
  }

  Index D_, N_, K_;
  FocusForm form_;
  double scale_;          // factor of dot products of two heads
  Index first_rescaled_;  // index among query, focus, key and value: 0 or 3
  Norm<Device, T> norm_;
  Linear<Device, T> maps_;
  Residual<Device, T> residual_;
  T* row_bcq_;
  Accum<T>* logit_bnc_;
  Pooling<Device, T> pooling_;
  Rescale<Device, T> rescale_;
};

struct LeapMixer {
  static constexpr MixerProperties properties = {.name = "leap",
                                                 .summary = "running averages of keys and values, gated by the query",
                                                 .golden_case = "leap_attention",
                                                 .has_window = true,
                                                 .pools = true,
                                                 .decays = true,
                                                 .in_chunks = true,
                                                 .truncates = true,
                                                 .options = "rescale normed-values leap-focus"};
  template <class Device, class T>
  using Type = LeapBlock<Device, T>;
};

}  // namespace abh
