#pragma once

#include <string>
#include <vector>

#include "blocks/parts/linear.hpp"
#include "blocks/parts/norm.hpp"
#include "blocks/parts/pooling_core.hpp"
#include "layers/gate.hpp"
#include "settings/config.hpp"

namespace abh {

// The additive attention block: Fastformer's additive attention (Wu et al., 2021), here causal. A first pooling
// averages the queries of all positions so far into one vector per head. This vector gates the keys. A second pooling
// averages the gated keys, and its result gates the values. The cost per position does not depend on the length of the
// sequence. Chapter: docs/blocks/additive.md.
//
//   h_bcd  = layernorm(x_bcd)                                                                         (additive.1)
//   q_bcd  = sum_d' h_bcd' query_dd',  k_bcd = sum_d' h_bcd' key_dd',  v_bcd = sum_d' h_bcd' value_dd'
//            shared values: v_bcd = q_bcd, and there is no matrix value_dd                            (additive.2)
//   a_bnc  = sum_k q_bcnk query_pool_nk / sqrt(K)                                                     (additive.3)
//   P_bcd  = pool(a_bnc, q_bcd)                                                                       (additive.4)
//   z_bcd  = dropout(P_bcd)                                                                           (additive.5)
//   p_bcd  = sum_d' z_bcd' mix_dd'                           without projection: p_bcd = z_bcd        (additive.6)
//   r_bcd  = h_bcd + p_bcd k_bcd                                                                      (additive.7)
//   t_bcd  = layernorm_mid(r_bcd)                                                                     (additive.8)
//   e_bnc  = sum_k t_bcnk key_pool_nk / sqrt(K)                                                       (additive.9)
//   u_bcd  = pool(e_bnc, t_bcd)                                                                       (additive.10)
//   out_bcd = x_bcd + dropout(u_bcd) v_bcd                   skip stream                              (additive.11)
//   out_bcd = r_bcd + dropout(u_bcd) v_bcd                   skip normed                              (additive.12)
//
// Backward; layernorm_backward also adds to the gradients of the weights of the norm:
//
//   d_u_bcd = dropout_backward(d_out_bcd v_bcd),  d_v_bcd = d_out_bcd dropout(u_bcd)                  (additive.13)
//   d_t_bcd, d_e_bnc = pool_backward(d_u_bcd)                                                         (additive.14)
//   d_t_bcnk += d_e_bnc key_pool_nk / sqrt(K),
//   d_key_pool_nk += sum_bc d_e_bnc t_bcnk / sqrt(K)                                                  (additive.15)
//   d_r_bcd = layernorm_mid_backward(d_t_bcd) {+ d_out_bcd | skip normed}                             (additive.16)
//   d_p_bcd = d_r_bcd k_bcd,  d_k_bcd = d_r_bcd p_bcd                                                 (additive.17)
//   d_mix_dd' += sum_bc d_p_bcd z_bcd'                                                                (additive.18)
//   d_z_bcd' = sum_d d_p_bcd mix_dd'                         without projection: d_z_bcd = d_p_bcd    (additive.19)
//   d_P_bcd = dropout_backward(d_z_bcd)                                                               (additive.20)
//   d_q_bcd, d_a_bnc = pool_backward(d_P_bcd) {+ d_v_bcd | d_q, shared values}                        (additive.21)
//   d_q_bcnk += d_a_bnc query_pool_nk / sqrt(K),
//   d_query_pool_nk += sum_bc d_a_bnc q_bcnk / sqrt(K)                                                (additive.22)
//   d_query_dd' += sum_bc d_q_bcd h_bcd',  d_key_dd' += sum_bc d_k_bcd h_bcd',
//   d_value_dd' += sum_bc d_v_bcd h_bcd'                     own values                               (additive.23)
//   d_h_bcd' = d_r_bcd' + sum_d (d_q_bcd query_dd' + d_k_bcd key_dd' {+ d_v_bcd value_dd' | own values})  (additive.24)
//   d_x_bcd = layernorm_backward(d_h_bcd) {+ d_out_bcd | skip stream}                                 (additive.25)
//
// With ALiBi, both poolings decay by the slopes of the heads. A block without a causal mask averages over all
// positions. Without projection, the gate applies the dropout, forward and backward. Saved: q, k, v, P, p, r, u;
// logits, maxima and sums of both poolings; unless recomputed, h, t and, with projection, z. Cost: 2 D^2 flops per
// position and linear map. Decoding keeps the states of the two poolings.
template <class Device, class T>
class AdditiveBlock : public Block<Device, T> {
 public:
  AdditiveBlock(Layout<T>& layout, const std::string& prefix, const ModelConfig& config, const BlockCapacity& capacity,
                const BlockOptions& options)
      : D_(config.channels),
        N_(config.heads),
        own_values_(config.additive.values == "own"),
        skip_normed_(config.additive.skip == "normed"),
        projection_(config.additive.projection),
        qkv_size_(own_values_ ? 3 * D_ : 2 * D_),
        options_(options),
        norm_(layout, prefix + "norm_", options.norm, D_, capacity),
        mid_norm_(layout, prefix + "mid_norm_", true, D_, capacity),
        query_key_value_(layout, prefix, maps(), D_, D_, Init::normal),
        mix_(layout, prefix, projection_ ? Names{"mix_dd"} : Names{}, D_, D_, Init::normal),
        qkv_bcq_(layout.template activation<T>(capacity.B * capacity.C * qkv_size_)),
        first_(layout, prefix + "query_pool_nk", config, options, capacity),
        second_(layout, prefix + "key_pool_nk", config, options, capacity) {
    const Index BC = capacity.B * capacity.C;
    if (projection_) {
      dropped_bcd_ = layout.template recomputable_activation<T>(BC * D_);
      mixed_bcd_ = layout.template activation<T>(BC * D_);
    }
    r_bcd_ = layout.template activation<T>(BC * D_);
  }

  void forward(Device& device, T* out_bcd, const T* in_bcd, const PassContext& pass) override {
    run(
        device, out_bcd, in_bcd, pass, [&](Core& pooling, const Rows& x) { pooling.forward(device, x, pass); },
        [&](Core& pooling, const Rows& x, const GateForward<T>& gate) {
          pooling.forward_gated(device, x, gate, pass);
        });
  }

  void backward(Device& device, T* d_x_bcd, const T* in_bcd, const PassContext& pass) override {
    const Index BC = pass.BC();
    // d_x_bcd contains d_out until the last line.
    typename Device::Scope scratch(device.workspace);
    T* d_qkv_bcq = scratch.template take<T>(BC * qkv_size_);
    T* d_u_bcd = scratch.template take<T>(BC * D_);
    T* d_t_bcd = scratch.template take<T>(BC * D_);
    T* d_r_bcd = scratch.template take<T>(BC * D_);
    const Payload<T> d_q{d_qkv_bcq, qkv_size_}, d_t{d_t_bcd};
    T* d_k_bcd = d_qkv_bcq + D_;
    T* d_v_bcd = own_values_ ? d_qkv_bcq + 2 * D_ : d_qkv_bcq;
    // These arrays reuse memory whose content is no longer needed.
    T* d_p_bcd = d_u_bcd;
    T* d_z_bcd = d_t_bcd;
    T* d_P_bcd = projection_ ? d_z_bcd : d_p_bcd;
    T* d_h_bcd = d_r_bcd;
    typename Device::SideStream weights(device);  // weight gradients run concurrently

    gate_backward<Device, T>(device, gate(d_u_bcd, d_v_bcd, d_x_bcd, u_and_v(pass)));  // (additive.13)
    const T* t_bcd = mid_norm_.normed(device, d_r_bcd, r_bcd_, BC);
    {
      typename Device::Scope logits(device.workspace);
      Accum<T>* d_e_bnc = logits.template take<Accum<T>>(BC * N_);
      second_.backward(device, d_t, false, d_e_bnc, d_u_bcd, {t_bcd}, pass);  // (additive.14)
      second_.logits_backward(device, d_t, d_e_bnc, {t_bcd}, pass);           // (additive.15)
    }
    T* d_skip_bcd = skip_normed_ ? d_x_bcd : nullptr;
    mid_norm_.backward_of_gate(device, d_r_bcd, d_t_bcd, d_skip_bcd, r_bcd_,  // (additive.16) (additive.17)
                               gate(d_p_bcd, d_k_bcd, d_r_bcd, p_and_k(pass)));
    if (projection_) {
      const T* z_bcd = dropped_bcd_ ? dropped_bcd_ : drop(device, d_z_bcd, pass);
      mix_.backward_weight(weights.fork(), d_p_bcd, z_bcd, BC);  // (additive.18)
      if (z_bcd == d_z_bcd) weights.join();                      // z_bcd was recomputed into d_z_bcd
      mix_.backward_input(device, d_z_bcd, d_p_bcd, BC);         // (additive.19)
      dropout_backward<Device, T>(device, d_P_bcd, d_z_bcd, P_dropout(pass), BC * D_);  // (additive.20)
    }
    {
      typename Device::Scope logits(device.workspace);
      Accum<T>* d_a_bnc = logits.template take<Accum<T>>(BC * N_);
      first_.backward(device, d_q, !own_values_, d_a_bnc, d_P_bcd, q(), pass);  // (additive.21)
      first_.logits_backward(device, d_q, d_a_bnc, q(), pass);                  // (additive.22)
    }
    const T* h_bcd = norm_.normed(device, d_P_bcd, in_bcd, BC);
    query_key_value_.backward_weight(weights.fork(), d_qkv_bcq, h_bcd, BC);  // (additive.23)
    query_key_value_.add_backward_input(device, d_h_bcd, d_qkv_bcq, BC);     // (additive.24)
    norm_.backward(device, d_x_bcd, d_h_bcd, around(d_x_bcd), in_bcd, BC);   // (additive.25)
  }

  void reset(Device& device) override {
    first_.reset(device);
    second_.reset(device);
  }

  void continue_after_prefill(Device& device, Index positions) override {
    first_.continue_after_prefill(device, positions);
    second_.continue_after_prefill(device, positions);
  }

  void inspect(Device& device, const Inspector& inspector, const T* out_bcd, const PassContext& pass) const override {
    const std::vector<Index> bcd = {pass.B, pass.C, D_};
    report(device, inspector, "h_bcd", norm_.saved(), bcd, D_);
    report(device, inspector, "q_bcd", q().x_bch, bcd, D_, qkv_size_);
    report(device, inspector, "k_bcd", k_bcd(), bcd, D_, qkv_size_);
    report(device, inspector, "v_bcd", v_bcd(), bcd, D_, qkv_size_);
    first_.inspect(device, inspector, "a_bnc", "a_weight_bncs", "P_bcd", pass);
    if (projection_) {
      report(device, inspector, "z_bcd", dropped_bcd_, bcd, D_);
      report(device, inspector, "p_bcd", mixed_bcd_, bcd, D_);
    }
    report(device, inspector, "r_bcd", r_bcd_, bcd, D_);
    report(device, inspector, "t_bcd", mid_norm_.saved(), bcd, D_);
    second_.inspect(device, inspector, "e_bnc", "e_weight_bncs", "u_bcd", pass);
    report(device, inspector, "out_bcd", out_bcd, bcd, D_);
  }

  void decode(Device& device, T* out_d, const T* in_d, Index) override {
    run(
        device, out_d, in_d, one_position, [&](Core& pooling, const Rows& x) { pooling.decode(device, x.x_bch); },
        [&](Core& pooling, const Rows& x, const GateForward<T>& gate) {
          pooling.decode(device, x.x_bch);
          gate_forward<Device, T>(device, gate);
        });
  }

 private:
  using Names = std::vector<std::string>;
  using Core = PoolingCore<Device, T>;
  using Rows = Payload<const T>;

  // Forward computation of a pass and of a decode step, which have different pooling functions: pool(pooling, x), and
  // pool_and_gate(pooling, x, gate), which also computes the gate of the averages.
  template <class Pool, class PoolAndGate>
  void run(Device& device, T* out_bcd, const T* in_bcd, const PassContext& pass, const Pool& pool,
           const PoolAndGate& pool_and_gate) {
    const Index BC = pass.BC();
    const T* h_bcd = norm_.forward(device, out_bcd, in_bcd, BC);  // (additive.1)
    query_key_value_.forward(device, qkv_bcq_, h_bcd, BC);        // (additive.2)
    first_.logits(device, q(), pass);                             // (additive.3)
    pool(first_, q());                                            // (additive.4)
    if (projection_) {
      const T* z_bcd = drop(device, dropped_bcd_ ? dropped_bcd_ : r_bcd_, pass);  // (additive.5)
      mix_.forward(device, mixed_bcd_, z_bcd, BC);                                // (additive.6)
    }
    const T* t_bcd = mid_norm_.forward_of_gate(device, out_bcd,  // (additive.7) (additive.8)
                                               gate(r_bcd_, h_bcd, p_and_k(pass)));
    second_.logits(device, {t_bcd}, pass);  // (additive.9)
    if (!skip_normed_) {
      pool_and_gate(second_, {t_bcd}, gate(out_bcd, around(in_bcd), u_and_v(pass)));  // (additive.10) (additive.11)
    } else {
      pool_and_gate(second_, {t_bcd}, gate(out_bcd, r_bcd_, u_and_v(pass)));  // (additive.10) (additive.12)
    }
  }

  // z, the input of the projection.
  const T* drop(Device& device, T* z_bcd, const PassContext& pass) const {
    dropout_forward<Device, T>(device, z_bcd, first_.out_bch(), nullptr, P_dropout(pass), pass.BC() * D_);
    return z_bcd;
  }

  // out = residual + dropout(pooled) gate
  GateForward<T> gate(T* out_bcd, const T* residual_bcd, const GateInputs<T>& in) const {
    return {.out_bcd = out_bcd, .residual_bcd = residual_bcd, .in = in};
  }
  GateBackward<T> gate(T* d_pooled_bcd, T* d_gate_bcd, const T* d_out_bcd, const GateInputs<T>& in) const {
    return {.d_pooled_bcd = d_pooled_bcd,
            .d_gate_bcd = d_gate_bcd,
            .d_gate_stride = qkv_size_,
            .d_out_bcd = d_out_bcd,
            .in = in};
  }

  Names maps() const { return own_values_ ? Names{"query_dd", "key_dd", "value_dd"} : Names{"query_dd", "key_dd"}; }

  Payload<const T> q() const { return {qkv_bcq_, qkv_size_}; }
  const T* k_bcd() const { return qkv_bcq_ + D_; }
  const T* v_bcd() const { return own_values_ ? qkv_bcq_ + 2 * D_ : qkv_bcq_; }
  const T* u_bcd() const { return second_.out_bch(); }

  // Inputs of the two gates: p or u, and k or v, which are slices of the rows of q, k and v. Without projection, the
  // first gate reads P instead of p and applies its dropout.
  GateInputs<T> p_and_k(const PassContext& pass) const {
    return {.pooled_bcd = projection_ ? mixed_bcd_ : first_.out_bch(),
            .gate_bcd = k_bcd(),
            .gate_stride = qkv_size_,
            .dropout = projection_ ? Dropout{} : P_dropout(pass),
            .BC = pass.BC(),
            .D = D_};
  }
  GateInputs<T> u_and_v(const PassContext& pass) const {
    return {.pooled_bcd = u_bcd(),
            .gate_bcd = v_bcd(),
            .gate_stride = qkv_size_,
            .dropout = u_dropout(pass),
            .BC = pass.BC(),
            .D = D_};
  }
  Dropout P_dropout(const PassContext& pass) const { return dropout_of(pass, options_, sites::LayerUse::mixer, D_); }
  Dropout u_dropout(const PassContext& pass) const {
    return dropout_of(pass, options_, sites::LayerUse::mixer_second, D_);
  }

  // Rows of the residual connection: the input, or d_out in the backward pass. Null with skip normed.
  const T* around(const T* rows_bcd) const { return options_.residual && !skip_normed_ ? rows_bcd : nullptr; }

  Index D_, N_;
  bool own_values_, skip_normed_, projection_;
  Index qkv_size_;  // channels of query, key and (own) value in one row
  BlockOptions options_;
  Norm<Device, T> norm_, mid_norm_;
  Linear<Device, T> query_key_value_, mix_;
  T* qkv_bcq_;
  PoolingCore<Device, T> first_, second_;
  T* dropped_bcd_ = nullptr;  // z
  T* mixed_bcd_ = nullptr;    // p
  T* r_bcd_;
};

struct AdditiveMixer {
  static constexpr MixerProperties properties = {.name = "additive",
                                                 .summary = "running averages, one logit per position and head",
                                                 .golden_case = "additive_attention",
                                                 .golden_norm = true,
                                                 .has_window = true,
                                                 .pools = true,
                                                 .decays = true,
                                                 .has_products = true,
                                                 .in_chunks = true,
                                                 .truncates = true};
  template <class Device, class T>
  using Type = AdditiveBlock<Device, T>;
};

}  // namespace abh
