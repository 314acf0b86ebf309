#pragma once

#include <string>

#include "blocks/norm.hpp"
#include "layers/gate.hpp"
#include "layers/linear.hpp"
#include "layers/pooling.hpp"
#include "layers/pooling_logits.hpp"
#include "settings/config.hpp"

namespace abh {

// The additive-attention block: Fastformer's additive attention (Wu et al., 2021) made causal. A query pools the past
// into one vector a head, which gates the keys; a second pooling of those gates the values. Every step costs the same,
// whatever the length of the past. Chapter: docs/blocks/additive.md.
//
//   h_bcd = layernorm(x_bcd)                                          (additive.1)
//   q, k, v = h query_dd^T, h key_dd^T, h value_dd^T                  (additive.2)   shared values: v = q
//   a_bnc = q . query_pool_nk / sqrt(K),  P_bcd = pool(a, q)          (additive.3)
//   p_bcd = dropout(P) mix_dd^T                                       (additive.4)   without projection: p = dropout(P)
//   r_bcd = h + p k                                                   (additive.5)
//   t_bcd = layernorm_mid(r)                                          (additive.6)
//   e_bnc = t . key_pool_nk / sqrt(K),  u_bcd = pool(e, t)            (additive.7)
//   out_bcd = x + dropout(u) v     (skip stream)                      (additive.8)
//   out_bcd = r + dropout(u) v     (skip normed)                      (additive.9)
//
// Backward (the pooling's own derivatives are in layers/pooling.hpp):
//
//   d_u = dropout'(d_out v),  d_v = d_out dropout(u)                  (additive.10)
//   d_t = pool'(d_u)                                                  (additive.11)
//   d_r = layernorm_mid'(d_t) [+ d_out, skip normed]                  (additive.12)
//   d_p = d_r k,  d_k = d_r p                                         (additive.13)
//   d_P = dropout'(d_p mix_dd)                                        (additive.14)
//   d_q = pool'(d_P) [+ d_v, shared values]                           (additive.15)
//   d_h = d_r + d_q query_dd + d_k key_dd + d_v value_dd              (additive.16)
//   d_x = layernorm'(d_h) [+ d_out, skip stream]                      (additive.17)
//
// Saved: q, k, v, P, p, r, u, logits, maxima and sums of both poolings; and, unless they are computed again, h, t and,
// with projection, dropout(P). Cost: 2 D^2 flops a position and map.
// Step by step: the two pooling states.
template <class Device, class T>
class AdditiveBlock : public Block<Device, T> {
 public:
  AdditiveBlock(Layout<T>& layout, const std::string& prefix, const ModelConfig& config, const BlockExtent& extent,
                const BlockOptions& options)
      : D_(config.channels),
        N_(config.heads),
        K_(D_ / N_),
        window_(options.window),
        own_values_(config.additive_values == "own"),
        skip_normed_(config.additive_skip == "normed"),
        projection_(config.additive_projection),
        qkv_(own_values_ ? 3 * D_ : 2 * D_),
        options_(options),
        norm_(layout, prefix + "norm_", options.norm, D_, extent),
        mid_norm_(layout, prefix + "mid_norm_", true, D_, extent) {
    const Index BC = extent.B * extent.C;
    // Query, key, value: one (qkv, D) weight.
    query_ = layout.weight(prefix + "query_dd", {D_, D_}, Init::normal, Kind::linear);
    layout.weight(prefix + "key_dd", {D_, D_}, Init::normal, Kind::linear);
    if (own_values_) layout.weight(prefix + "value_dd", {D_, D_}, Init::normal, Kind::linear);
    if (projection_) mix_ = layout.weight(prefix + "mix_dd", {D_, D_}, Init::normal, Kind::linear);
    query_pool_ = layout.weight(prefix + "query_pool_nk", {N_, K_}, Init::zero, Kind::undecayed);
    key_pool_ = layout.weight(prefix + "key_pool_nk", {N_, K_}, Init::zero, Kind::undecayed);
    qkv_bcq_ = layout.template activation<T>(BC * qkv_);
    first_.claim(layout, extent, *this);
    second_.claim(layout, extent, *this);
    if (projection_) {
      dropped_bcd_ = layout.template cheap_activation<T>(BC * D_);
      mixed_bcd_ = layout.template activation<T>(BC * D_);
    }
    r_bcd_ = layout.template activation<T>(BC * D_);
  }

  void forward(Device& device, T* out_bcd, const T* in_bcd, const Pass& pass) override {
    run(device, out_bcd, in_bcd, pass, [&](Pooling& pooling, const T* x_bch, Index x_stride) {
      pooling_forward<Device, T>(device, {.out_bch = pooling.out_bcd,
                                          .max_bnc = pooling.max_bnc,
                                          .sum_bnc = pooling.sum_bnc,
                                          .logit_bnc = pooling.logit_bnc,
                                          .x_bch = x_bch,
                                          .x_stride = x_stride,
                                          .mask_bc = pass.mask_bc,
                                          .shape = shape(pass)});
    });
  }

  void backward(Device& device, T* d_x_bcd, const T* in_bcd, const Pass& pass) override {
    const Index BC = pass.BC();
    typename Device::Scope scratch(device.workspace);
    T* d_qkv_bcq = scratch.template take<T>(BC * qkv_);
    T* d_pooled_bcd = scratch.template take<T>(BC * D_);
    T* d_t_bcd = scratch.template take<T>(BC * D_);
    T* d_r_bcd = scratch.template take<T>(BC * D_);
    T* d_key_bcd = d_qkv_bcq + D_;
    T* d_value_bcd = own_values_ ? d_qkv_bcq + 2 * D_ : d_qkv_bcq;

    gate_backward<Device, T>(device, {.d_pooled_bcd = d_pooled_bcd,
                                      .d_gate_bcd = d_value_bcd,
                                      .d_gate_stride = qkv_,
                                      .d_out_bcd = d_x_bcd,
                                      .pooled_bcd = second_.out_bcd,
                                      .gate_bcd = value(),
                                      .gate_stride = qkv_,
                                      .dropout = second_dropout(pass),
                                      .BC = BC,
                                      .D = D_});  // (additive.10)
    pool_backward(device, second_, key_pool_, d_t_bcd, 0, false, d_pooled_bcd,
                  mid_norm_.normed(device, d_r_bcd, r_bcd_, BC), 0, pass);                       // (additive.11)
    mid_norm_.backward(device, d_r_bcd, d_t_bcd, skip_normed_ ? d_x_bcd : nullptr, r_bcd_, BC);  // (additive.12)
    gate_backward<Device, T>(device, {.d_pooled_bcd = d_pooled_bcd,
                                      .d_gate_bcd = d_key_bcd,
                                      .d_gate_stride = qkv_,
                                      .d_out_bcd = d_r_bcd,
                                      .pooled_bcd = projection_ ? mixed_bcd_ : first_.out_bcd,
                                      .gate_bcd = key(),
                                      .gate_stride = qkv_,
                                      .dropout = projection_ ? Dropout{} : first_dropout(pass),
                                      .BC = BC,
                                      .D = D_});  // (additive.13)
    if (projection_) {
      T* d_mixed_bcd = d_t_bcd;  // no longer needed
      linear_backward_weight<Device, T>(device,
                                        {.d_weight_oi = mix_.gradient,
                                         .d_out_bco = d_pooled_bcd,
                                         .in_bci = dropped_bcd_ ? dropped_bcd_ : drop(device, d_mixed_bcd, pass),
                                         .BC = BC,
                                         .I = D_,
                                         .O = D_});
      linear_backward_input<Device, T>(device, {.d_in_bci = d_mixed_bcd,
                                                .d_out_bco = d_pooled_bcd,
                                                .weight_oi = mix_.value,
                                                .BC = BC,
                                                .I = D_,
                                                .O = D_});  // (additive.14)
      dropout_backward<Device, T>(device, d_pooled_bcd, d_mixed_bcd, first_dropout(pass), BC * D_);
    }
    pool_backward(device, first_, query_pool_, d_qkv_bcq, qkv_, !own_values_, d_pooled_bcd, qkv_bcq_, qkv_,
                  pass);  // (additive.15)
    linear_backward_weight<Device, T>(device, {.d_weight_oi = query_.gradient,
                                               .d_out_bco = d_qkv_bcq,
                                               .in_bci = norm_.normed(device, d_pooled_bcd, in_bcd, BC),
                                               .BC = BC,
                                               .I = D_,
                                               .O = qkv_});
    linear_backward_input<Device, T>(device, {.d_in_bci = d_r_bcd,
                                              .d_out_bco = d_qkv_bcq,
                                              .weight_oi = query_.value,
                                              .BC = BC,
                                              .I = D_,
                                              .O = qkv_,
                                              .accumulate = true});  // (additive.16)
    const bool around = !skip_normed_ && options_.residual;
    norm_.backward(device, d_x_bcd, d_r_bcd, around ? d_x_bcd : nullptr, in_bcd, BC);  // (additive.17)
  }

  void start(Device& device) override {
    pooling_start<Device, T>(device, first_.state, shape(one_position));
    pooling_start<Device, T>(device, second_.state, shape(one_position));
  }

  void step(Device& device, T* out_d, const T* in_d, Index) override {
    run(device, out_d, in_d, one_position, [&](Pooling& pooling, const T* x_h, Index) {
      pooling_step<Device, T>(device, pooling.out_bcd, pooling.state, pooling.logit_bnc, x_h, shape(one_position));
    });
  }

 private:
  static constexpr Pass one_position{.B = 1, .C = 1};

  // One pooling with what it saves for backward, and its state in step-by-step inference.
  struct Pooling {
    Accum<T>* logit_bnc;
    Accum<T>* max_bnc;
    Accum<T>* sum_bnc;
    T* out_bcd;
    Accum<T>* state = nullptr;

    void claim(Layout<T>& layout, const BlockExtent& extent, const AdditiveBlock& block) {
      const Index BC = extent.B * extent.C;
      logit_bnc = layout.template activation<Accum<T>>(BC * block.N_);
      max_bnc = layout.template activation<Accum<T>>(BC * block.N_);
      sum_bnc = layout.template activation<Accum<T>>(BC * block.N_);
      out_bcd = layout.template activation<T>(BC * block.D_);
      if (extent.positions) {
        state = layout.template state<Accum<T>>(pooling_state_size(block.shape(one_position)));
      }
    }
  };

  // The forward computation, shared by passes and steps, which pool differently.
  template <class Pool>
  void run(Device& device, T* out_bcd, const T* in_bcd, const Pass& pass, const Pool& pool) {
    const Index BC = pass.BC();
    const T* h_bcd = norm_.forward(device, out_bcd, in_bcd, BC);  // (additive.1)
    linear_forward<Device, T>(device, {.out_bco = qkv_bcq_,
                                       .in_bci = h_bcd,
                                       .weight_oi = query_.value,
                                       .BC = BC,
                                       .I = D_,
                                       .O = qkv_});  // (additive.2)
    pooling_logits_forward<Device, T>(device, {.logit_bnc = first_.logit_bnc,
                                               .x_bch = qkv_bcq_,
                                               .x_stride = qkv_,
                                               .pool_nk = query_pool_.value,
                                               .B = pass.B,
                                               .C = pass.C,
                                               .N = N_,
                                               .K = K_});  // (additive.3)
    pool(first_, qkv_bcq_, qkv_);
    if (projection_) {
      linear_forward<Device, T>(device, {.out_bco = mixed_bcd_,
                                         .in_bci = drop(device, dropped_bcd_ ? dropped_bcd_ : r_bcd_, pass),
                                         .weight_oi = mix_.value,
                                         .BC = BC,
                                         .I = D_,
                                         .O = D_});  // (additive.4)
    }
    gate_forward<Device, T>(device, {.out_bcd = r_bcd_,
                                     .residual_bcd = h_bcd,
                                     .pooled_bcd = projection_ ? mixed_bcd_ : first_.out_bcd,
                                     .gate_bcd = key(),
                                     .gate_stride = qkv_,
                                     .dropout = projection_ ? Dropout{} : first_dropout(pass),
                                     .BC = BC,
                                     .D = D_});                       // (additive.5)
    const T* t_bcd = mid_norm_.forward(device, out_bcd, r_bcd_, BC);  // (additive.6)
    pooling_logits_forward<Device, T>(device, {.logit_bnc = second_.logit_bnc,
                                               .x_bch = t_bcd,
                                               .pool_nk = key_pool_.value,
                                               .B = pass.B,
                                               .C = pass.C,
                                               .N = N_,
                                               .K = K_});  // (additive.7)
    pool(second_, t_bcd, 0);
    const T* around_bcd = options_.residual ? in_bcd : nullptr;  // (additive.8)
    if (skip_normed_) around_bcd = r_bcd_;                       // (additive.9)
    gate_forward<Device, T>(device, {.out_bcd = out_bcd,
                                     .residual_bcd = around_bcd,
                                     .pooled_bcd = second_.out_bcd,
                                     .gate_bcd = value(),
                                     .gate_stride = qkv_,
                                     .dropout = second_dropout(pass),
                                     .BC = BC,
                                     .D = D_});
  }

  // dropout(P), the input of the projection.
  const T* drop(Device& device, T* dropped_bcd, const Pass& pass) {
    dropout_forward<Device, T>(device, dropped_bcd, first_.out_bcd, nullptr, first_dropout(pass), pass.BC() * D_);
    return dropped_bcd;
  }

  // Through one pooling and its logits, both of which read the payload x.
  void pool_backward(Device& device, const Pooling& pooling, const Weight<T>& pool_vector, T* d_x_bch, Index d_x_stride,
                     bool accumulate, const T* d_out_bcd, const T* x_bch, Index x_stride, const Pass& pass) {
    typename Device::Scope scratch(device.workspace);
    Accum<T>* d_logit_bnc = scratch.template take<Accum<T>>(pass.BC() * N_);
    pooling_backward<Device, T>(device, {.d_x_bch = d_x_bch,
                                         .d_x_stride = d_x_stride,
                                         .accumulate = accumulate,
                                         .d_logit_bnc = d_logit_bnc,
                                         .d_out_bch = d_out_bcd,
                                         .out_bch = pooling.out_bcd,
                                         .max_bnc = pooling.max_bnc,
                                         .sum_bnc = pooling.sum_bnc,
                                         .logit_bnc = pooling.logit_bnc,
                                         .x_bch = x_bch,
                                         .x_stride = x_stride,
                                         .mask_bc = pass.mask_bc,
                                         .shape = shape(pass)});
    pooling_logits_backward<Device, T>(device, {.d_x_bch = d_x_bch,
                                                .d_x_stride = d_x_stride,
                                                .d_pool_nk = pool_vector.gradient,
                                                .d_logit_bnc = d_logit_bnc,
                                                .x_bch = x_bch,
                                                .x_stride = x_stride,
                                                .pool_nk = pool_vector.value,
                                                .B = pass.B,
                                                .C = pass.C,
                                                .N = N_,
                                                .K = K_});
  }

  PoolingShape shape(const Pass& pass) const { return {pass.B, pass.C, N_, K_, window_}; }
  const T* key() const { return qkv_bcq_ + D_; }
  const T* value() const { return own_values_ ? qkv_bcq_ + 2 * D_ : qkv_bcq_; }
  Dropout first_dropout(const Pass& pass) const { return dropout_of(pass, options_, sites::LayerUse::mixer); }
  Dropout second_dropout(const Pass& pass) const { return dropout_of(pass, options_, sites::LayerUse::mixer_second); }

  Index D_, N_, K_, window_;
  bool own_values_, skip_normed_, projection_;
  Index qkv_;  // channels of query, key and (own) value side by side
  BlockOptions options_;
  Norm<Device, T> norm_, mid_norm_;
  Weight<T> query_, mix_, query_pool_, key_pool_;
  Pooling first_, second_;
  T* qkv_bcq_;
  T* dropped_bcd_ = nullptr;
  T* mixed_bcd_ = nullptr;
  T* r_bcd_;
};

struct AdditiveMixer {
  static constexpr MixerProperties properties = {.name = "additive",
                                                 .summary = "running averages, weighted by one logit a position",
                                                 .golden_case = "additive_attention",
                                                 .golden_norm = true,
                                                 .has_window = true,
                                                 .is_causal_only = true};
  template <class Device, class T>
  using Type = AdditiveBlock<Device, T>;
};

}  // namespace abh
