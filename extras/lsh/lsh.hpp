#pragma once

#include <string>
#include <type_traits>
#include <vector>

#include "blocks/block.hpp"
#include "blocks/parts/linear.hpp"
#include "blocks/parts/norm.hpp"
#include "blocks/parts/residual.hpp"
#include "extras/lsh/lsh_attention.hpp"
#include "plain/plain.hpp"
#include "settings/config.hpp"

namespace abh {

// Block of attention within hash buckets (Kitaev, Kaiser, Levskaya, 2020). Chapter: extras/lsh/README.md.
//
// Rows (bch) and the matrices that make them (hd); q = channels of query and value together. The rotations are random,
// drawn with the initial weights, and not trained.
//
//   h_bcd = layernorm(x_bcd)                                               (lsh.1)
//   query_bch = sum_d h_bcd project_hd,
//   value_bch = sum_d h_bcd value_hd                                       (lsh.2)
//   order = lsh_order(query_bch, rotations_nukr)                           (lsh.3)
//   t_bch = lsh_attention(query_bch, value_bch, order)                     (lsh.4)
//   y_bcd = sum_h t_bch output_dh                                          (lsh.5)
//   out_bcd = x_bcd + dropout(y_bcd)                                       (lsh.6)
//
// Backward pass. layernorm_backward also accumulates the gradients of the norm's weights:
//
//   d_y_bcd = dropout_backward(d_out_bcd)                                  (lsh.7)
//   d_output_dh += sum_bc d_y_bcd t_bch                                    (lsh.8)
//   d_t_bch = sum_d d_y_bcd output_dh                                      (lsh.9)
//   d_query_bch, d_value_bch = lsh_attention_backward(d_t_bch, order)      (lsh.10)
//   d_project_hd += sum_bc d_query_bch h_bcd,
//   d_value_hd += sum_bc d_value_bch h_bcd                                 (lsh.11)
//   d_h_bcd = sum_h (d_query_bch project_hd + d_value_bch value_hd)        (lsh.12)
//   d_x_bcd = d_out_bcd + layernorm_backward(d_h_bcd)                      (lsh.13)
//
// Saved: h (unless recomputed), query, value, t, the log-sum-exp of every row of scores, and the order. A pass that
// recomputes rows keeps the saved buckets, because rounding could move a row to another bucket.
//
// No inference with a cache: a new position can move all others to other pieces (extras/lsh/README.md).

// Settings in which golden files may differ from the mixer.
struct LshRules {
  bool counted = false, within_bucket = false;
};

template <class Device, class T>
class LshBlock : public Block<Device, T> {
 public:
  LshBlock(Layout<T>& layout, const std::string& prefix, const ModelConfig& config, const BlockCapacity& capacity,
           const BlockOptions& options, const LshRules& rules = {})
      : D_(config.channels),
        N_(config.heads),
        K_(config.mixer_head_channels()),
        U_(config.extras.lsh_rounds),
        R_(config.extras.lsh_buckets / 2),
        piece_(config.extras.lsh_piece),
        causal_(options.causal),
        rules_(rules),
        norm_(layout, prefix + "norm_", options.norm, D_, capacity),
        query_value_(layout, prefix, {"project_hd", "value_hd"}, H(), D_, Init::normal),
        rotations_(layout.weight(prefix + "rotations_nukr", {N_, U_, K_, R_}, Init::unit_normal, Kind::constant)),
        output_(layout, prefix, {"output_dh"}, D_, H(), Init::normal_residual),
        residual_(options, sites::LayerUse::mixer, D_),
        query_value_bcq_(layout.template activation<T>(capacity.B * capacity.C * 2 * H())),
        t_bch_(layout.template activation<T>(capacity.B * capacity.C * H())),
        lse_bnc_(layout.template activation<Accum<T>>(capacity.B * capacity.C * N_)),
        // Not in shared scratch memory: buckets must outlast recomputed rows.
        order_{layout.template persistent_activation<Token>(capacity.B * capacity.C * N_ * U_),
               layout.template activation<Token>(capacity.B * capacity.C * N_ * U_),
               layout.template activation<Token>(capacity.B * capacity.C * N_ * U_)} {}

  void forward(Device& device, T* out_bcd, const T* in_bcd, const PassContext& pass) override {
    const T* h_bcd = norm_.forward(device, out_bcd, in_bcd, pass.BC());                                      // (lsh.1)
    query_value_.forward(device, query_value_bcq_, h_bcd, pass.BC());                                        // (lsh.2)
    lsh_order<Device, T>(device, ordering(pass));                                                            // (lsh.3)
    lsh_attention_forward<Device, T>(device, {.out_bch = t_bch_, .lse_bnc = lse_bnc_, .in = inputs(pass)});  // (lsh.4)
    output_.forward(device, out_bcd, t_bch_, pass.BC());                                                     // (lsh.5)
    residual_.forward(device, out_bcd, out_bcd, in_bcd, pass);                                               // (lsh.6)
  }

  void backward(Device& device, T* d_x_bcd, const T* in_bcd, const PassContext& pass) override {
    const Index BC = pass.BC();
    typename Device::Scope scratch(device.workspace);
    T* d_y_bcd = scratch.template take<T>(BC * D_);
    T* d_t_bch = scratch.template take<T>(BC * H());
    T* d_query_value_bcq = scratch.template take<T>(BC * 2 * H());
    // A concurrent side stream may still read d_y when d_h is written. Without one, d_h reuses the array of d_y.
    T* d_h_bcd = Device::SideStream::runs_beside ? scratch.template take<T>(BC * D_) : d_y_bcd;
    typename Device::SideStream weights(device);  // computes gradients of weights concurrently

    residual_.backward(device, d_y_bcd, d_x_bcd, pass);                           // (lsh.7)
    output_.backward_weight(weights.fork(), d_y_bcd, t_bch_, BC);                 // (lsh.8)
    output_.backward_input(device, d_t_bch, d_y_bcd, BC);                         // (lsh.9)
    lsh_attention_backward<Device, T>(device, {.d_query_bch = d_query_value_bcq,  // (lsh.10)
                                               .d_value_bch = d_query_value_bcq + H(),
                                               .d_query_stride = 2 * H(),
                                               .d_value_stride = 2 * H(),
                                               .d_out_bch = d_t_bch,
                                               .out_bch = t_bch_,
                                               .lse_bnc = lse_bnc_,
                                               .in = inputs(pass)});
    const T* h_bcd = norm_.normed(device, d_h_bcd, in_bcd, BC);
    query_value_.backward_weight(weights.fork(), d_query_value_bcq, h_bcd, BC);       // (lsh.11)
    if (h_bcd == d_h_bcd) weights.join();                                             // recomputed h is in this array
    query_value_.backward_input(device, d_h_bcd, d_query_value_bcq, BC);              // (lsh.12)
    norm_.backward(device, d_x_bcd, d_h_bcd, residual_.around(d_x_bcd), in_bcd, BC);  // (lsh.13)
  }

  void inspect(Device& device, const Inspector& inspector, const T* out_bcd, const PassContext& pass) const override {
    const std::vector<Index> bcd = {pass.B, pass.C, D_}, bch = {pass.B, pass.C, H()};
    report(device, inspector, "h_bcd", norm_.saved(), bcd, D_);
    report(device, inspector, "query_bch", static_cast<const T*>(query_value_bcq_), bch, H(), 2 * H());
    report(device, inspector, "value_bch", static_cast<const T*>(query_value_bcq_ + H()), bch, H(), 2 * H());
    report(device, inspector, "bucket_bnuc", static_cast<const Token*>(order_.bucket_bnuc), {pass.B, N_, U_, pass.C},
           pass.C);
    report(device, inspector, "lse_bnc", static_cast<const Accum<T>*>(lse_bnc_), {pass.B, N_, pass.C}, pass.C);
    inspect_weights(device, inspector, pass);
    report(device, inspector, "t_bch", static_cast<const T*>(t_bch_), bch, H());
    report(device, inspector, "out_bcd", out_bcd, bcd, D_);
  }

  // Never called: check_steps rejects such a network before it is built.
  void decode(Device&, T*, const T*, Index) override {}

 private:
  Index H() const { return N_ * K_; }

  LshOrdering<T> ordering(const PassContext& pass) const {
    return {.out = order_,
            .query_bch = query_value_bcq_,
            .query_stride = 2 * H(),
            .rotations_nukr = rotations_.value,
            .mask_bc = pass.mask_bc,
            .buckets_stand = pass.again,
            .B = pass.B,
            .C = pass.C,
            .N = N_,
            .K = K_,
            .U = U_,
            .R = R_};
  }

  // Inputs from rows at distance `stride`, on the device or, for inspection, on the host.
  template <class Number>
  LshInputs<Number> inputs(const Number* query_bch, const Number* value_bch, Index stride,
                           const LshOrder<const Token>& order, const Token* mask_bc, const PassContext& pass) const {
    return {.query_bch = query_bch,
            .value_bch = value_bch,
            .query_stride = stride,
            .value_stride = stride,
            .order = order,
            .mask_bc = mask_bc,
            .causal = causal_,
            .counted = rules_.counted,
            .within_bucket = rules_.within_bucket,
            .piece_size = piece_,
            .B = pass.B,
            .C = pass.C,
            .N = N_,
            .K = K_,
            .U = U_};
  }
  LshInputs<T> inputs(const PassContext& pass) const {
    return inputs<T>(query_value_bcq_, query_value_bcq_ + H(), 2 * H(),
                     {order_.bucket_bnuc, order_.place_bnuc, order_.position_bnuc}, pass.mask_bc, pass);
  }

  // Shows the attention weights, computed on the host from saved arrays by the plain loops.
  void inspect_weights(Device& device, const Inspector& inspector, const PassContext& pass) const {
    using A = Accum<T>;
    if constexpr (std::is_constructible_v<double, A>) {
      const Index B = pass.B, C = pass.C;
      const std::vector<A> query = on_host<A>(device, query_value_bcq_, B * C, H(), 2 * H());
      const std::vector<A> lse = on_host<A>(device, lse_bnc_, B * N_, C);
      const std::vector<Token> mask = on_host<Token>(device, pass.mask_bc, B, C);
      const auto round = [&](const Token* place_bnuc) { return on_host<Token>(device, place_bnuc, B * N_ * U_, C); };
      const std::vector<Token> bucket = round(order_.bucket_bnuc), place = round(order_.place_bnuc);
      std::vector<A> weight(static_cast<std::size_t>(B * N_ * C * C));
      PlainDevice plain;
      lsh_attention_weights<PlainDevice, A>(
          plain, weight.data(), lse.data(),
          inputs<A>(query.data(), nullptr, H(), {bucket.data(), place.data(), nullptr},
                    pass.mask_bc ? mask.data() : nullptr, pass));
      inspector("weight_bncs", {B, N_, C, C}, std::vector<double>(weight.begin(), weight.end()));
    }
  }

  Index D_, N_, K_, U_, R_, piece_;
  bool causal_;
  LshRules rules_;
  Norm<Device, T> norm_;
  Linear<Device, T> query_value_;
  Weight<T> rotations_;
  Linear<Device, T> output_;
  Residual<Device, T> residual_;
  T *query_value_bcq_, *t_bch_;
  Accum<T>* lse_bnc_;
  LshOrder<Token> order_;
};

struct LshMixer {
  static constexpr MixerProperties properties = {.name = "lsh",
                                                 .summary = "attention within buckets of random hashes",
                                                 .head_projection = "project_hd",
                                                 .options = "hashing"};
  template <class Device, class T>
  using Type = LshBlock<Device, T>;
};

}  // namespace abh
