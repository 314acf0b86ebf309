#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <type_traits>
#include <vector>

#include "blocks/parts/attention_core.hpp"
#include "blocks/parts/linear.hpp"
#include "blocks/parts/norm.hpp"
#include "blocks/parts/residual.hpp"
#include "extras/chunks/copy_rows.hpp"
#include "extras/chunks/past_rows.hpp"
#include "extras/transformer_xl/relative_attention.hpp"
#include "plain/plain.hpp"
#include "settings/config.hpp"

namespace abh {

// Block of Transformer-XL: attention within segments of the sequence and to a memory of positions before each segment,
// by content and by distance (Dai et al., 2019). No gradient flows through the memory to the residual stream. The norm
// and the key and value matrices are applied to the memory in every segment, and they do get gradients from it.
// Chapter: extras/transformer_xl/README.md.
//
// Rows (bch) and the matrices that make them (hd) have the same names. row_pd is the row of distance p: sines, then
// cosines of p 10000^(-2t/D), t < D/2. There is one row per distance within reach, or clamp + 1 rows.
//
//   h_bcd = layernorm(x_bcd)                                               (transformer_xl.1)
//   query_bch = sum_d h_bcd query_hd                                       (transformer_xl.2)
//   key_bch = sum_d h_bcd key_hd,  value_bch = sum_d h_bcd value_hd        (transformer_xl.3)
//   rho_ph = sum_d row_pd position_hd                                      (transformer_xl.4)
//   t_bch = relative_attention(query_bch, key_bch, value_bch, rho_ph, content_bias_nk, position_bias_nk)
//                                                                          (transformer_xl.5)
//   y_bcd = sum_h t_bch output_dh                                          (transformer_xl.6)
//   out_bcd = x_bcd + dropout(y_bcd)                                       (transformer_xl.7)
//
// The memory of a segment is the rows x before it. Its norm, keys and values equal those of its own segment, so a pass
// over all segments computes them once. In the backward pass they have two gradients: that of their own segment and, as
// memory, that of later segments (past). Only the first flows to x. layernorm_backward also accumulates the gradients
// of the norm's weights, relative_attention_backward those of the two biases:
//
//   d_y_bcd = dropout_backward(d_out_bcd)                                  (transformer_xl.8)
//   d_output_dh += sum_bc d_y_bcd t_bch                                    (transformer_xl.9)
//   d_t_bch = sum_d d_y_bcd output_dh                                      (transformer_xl.10)
//   d_query_bch, d_key_bch, d_value_bch, d_past_key_bch, d_past_value_bch, d_rho_ph
//       = relative_attention_backward(d_t_bch)                             (transformer_xl.11)
//   d_position_hd += sum_p d_rho_ph row_pd                                 (transformer_xl.12)
//   d_query_hd += sum_bc d_query_bch h_bcd                                 (transformer_xl.13)
//   d_key_hd += sum_bc (d_key_bch + d_past_key_bch) h_bcd,
//   d_value_hd += sum_bc (d_value_bch + d_past_value_bch) h_bcd            (transformer_xl.14)
//   d_h_bcd = sum_h (d_query_bch query_hd + d_key_bch key_hd + d_value_bch value_hd)   (transformer_xl.15)
//   d_past_bcd = sum_h (d_past_key_bch key_hd + d_past_value_bch value_hd) (transformer_xl.16)
//   d_x_bcd = d_out_bcd + layernorm_backward(d_h_bcd)                      (transformer_xl.17)
//   the weights of the norm: += those of layernorm_backward(d_past_bcd)    (transformer_xl.18)
//
// Saved: h (unless recomputed), query, key, value, rho, t and the log-sum-exp of every row of scores. Inference: keys
// and values of the memory and of the current segment. With chunks of whole segments: the rows x of the memory.
template <class Device, class T>
class TransformerXlBlock : public Block<Device, T> {
 public:
  TransformerXlBlock(Layout<T>& layout, const std::string& prefix, const ModelConfig& config,
                     const BlockCapacity& capacity, const BlockOptions& options)
      : D_(config.channels),
        N_(config.heads),
        K_(config.mixer_head_channels()),
        segment_(config.extras.segment),
        memory_(config.extras.memory),
        distances_(distances_of(config, capacity)),
        norm_(layout, prefix + "norm_", options.norm, D_, with_past(capacity)),
        query_(layout, prefix, {"query_hd"}, H(), D_, Init::normal),
        key_value_(layout, prefix, {"key_hd", "value_hd"}, H(), D_, Init::normal),
        position_(layout, prefix, {"position_hd"}, H(), D_, Init::normal),
        content_bias_(layout.weight(prefix + "content_bias_nk", {N_, K_}, Init::zero, Kind::undecayed)),
        position_bias_(layout.weight(prefix + "position_bias_nk", {N_, K_}, Init::zero, Kind::undecayed)),
        output_(layout, prefix, {"output_dh"}, D_, H(), Init::normal_residual),
        residual_(options, sites::LayerUse::mixer, D_),
        past_(layout, memory_, D_, capacity),
        query_bch_(layout.template activation<T>(capacity.B * capacity.C * H())),
        key_value_bsq_(layout.template activation<T>(capacity.B * with_past(capacity).C * 2 * H())),
        row_pd_(layout.template constant<T>("row_pd", distances_ * D_,
                                            [D = D_](Index i) { return wave(i / D, i % D, D); })),
        rho_ph_(layout.template persistent_activation<T>(distances_ * H())),  // inference reads rows computed by start
        t_bch_(layout.template activation<T>(capacity.B * capacity.C * H())),
        lse_bnc_(layout.template activation<Accum<T>>(capacity.B * capacity.C * N_)) {
    if (!capacity.positions) return;
    key_sh_ = layout.template state<T>((memory_ + segment_) * H());
    value_sh_ = layout.template state<T>((memory_ + segment_) * H());
  }

  void forward(Device& device, T* out_bcd, const T* in_bcd, const PassContext& pass) override {
    typename Device::Scope scratch(device.workspace);
    const Index past = past_.positions(pass), rows = past + pass.BC();
    const T* x_bsd = past_.join(device, scratch, in_bcd, pass);
    T* scratch_bsd = past > 0 ? norm_.scratch_rows(scratch, rows) : out_bcd;
    const T* h_bsd = norm_.forward(device, scratch_bsd, x_bsd, rows);  // (transformer_xl.1)
    past_.leave(device, x_bsd, pass);
    query_.forward(device, query_bch_, h_bsd + past * D_, pass.BC());  // (transformer_xl.2)
    key_value_.forward(device, key_value_bsq_, h_bsd, rows);           // (transformer_xl.3)
    position_.forward(device, rho_ph_, row_pd_, distances_);           // (transformer_xl.4)
    relative_attention_forward<Device, T>(device,                      // (transformer_xl.5)
                                          {.out_bch = t_bch_, .lse_bnc = lse_bnc_, .in = inputs(pass)}, terms());
    project_output(device, out_bcd, in_bcd, pass);
  }

  void backward(Device& device, T* d_x_bcd, const T* in_bcd, const PassContext& pass) override {
    const Index BC = pass.BC(), past = past_.positions(pass), rows = past + BC;
    typename Device::Scope scratch(device.workspace);
    T* d_y_bcd = scratch.template take<T>(BC * D_);
    T* d_t_bch = scratch.template take<T>(BC * H());
    T* d_query_bch = scratch.template take<T>(BC * H());
    T* d_key_value_bsq = scratch.template take<T>(rows * 2 * H());
    T* d_past_bsq = scratch.template take<T>(rows * 2 * H());
    T* d_rho_ph = scratch.template take<T>(distances_ * H());
    T* d_past_bsd = scratch.template take<T>(rows * D_);
    T* scratch_bsd = norm_.scratch_rows(scratch, rows);
    // A concurrent side stream may still read d_y when d_h is written. Without one, d_h reuses the array of d_y.
    T* d_h_bcd = Device::SideStream::runs_beside ? scratch.template take<T>(BC * D_) : d_y_bcd;
    const T* x_bsd = past_.join(device, scratch, in_bcd, pass);
    const T* h_bsd = norm_.normed(device, scratch_bsd, x_bsd, rows);
    typename Device::SideStream weights(device);  // computes gradients of weights concurrently

    residual_.backward(device, d_y_bcd, d_x_bcd, pass);            // (transformer_xl.8)
    output_.backward_weight(weights.fork(), d_y_bcd, t_bch_, BC);  // (transformer_xl.9)
    output_.backward_input(device, d_t_bch, d_y_bcd, BC);          // (transformer_xl.10)
    relative_attention_backward<Device, T>(device,                 // (transformer_xl.11)
                                           {.d_query_bch = d_query_bch,
                                            .d_key_bsh = d_key_value_bsq,
                                            .d_value_bsh = d_key_value_bsq + H(),
                                            .d_key_stride = 2 * H(),
                                            .d_value_stride = 2 * H(),
                                            .d_out_bch = d_t_bch,
                                            .out_bch = t_bch_,
                                            .lse_bnc = lse_bnc_,
                                            .in = inputs(pass)},
                                           terms(),
                                           {.d_past_key_bsh = d_past_bsq,
                                            .d_past_value_bsh = d_past_bsq + H(),
                                            .d_rho_ph = d_rho_ph,
                                            .d_content_bias_nk = content_bias_.gradient,
                                            .d_position_bias_nk = position_bias_.gradient});
    position_.backward_weight(weights.fork(), d_rho_ph, row_pd_, distances_);    // (transformer_xl.12)
    query_.backward_weight(weights.fork(), d_query_bch, h_bsd + past * D_, BC);  // (transformer_xl.13)
    query_.backward_input(device, d_h_bcd, d_query_bch, BC);                     // (transformer_xl.15)
    key_value_.add_backward_input(device, d_h_bcd, d_key_value_bsq + past * 2 * H(), BC);
    if (memory_ > 0) {
      key_value_.backward_input(device, d_past_bsd, d_past_bsq, rows);  // (transformer_xl.16)
      norm_.add_weight_gradients(device, d_past_bsd, x_bsd, rows);      // (transformer_xl.18)
      add<Device, T>(device, d_key_value_bsq, d_key_value_bsq, d_past_bsq, rows * 2 * H());
    }
    key_value_.backward_weight(weights.fork(), d_key_value_bsq, h_bsd, rows);               // (transformer_xl.14)
    norm_.backward(device, d_x_bcd, d_h_bcd, residual_.around(d_x_bcd), in_bcd, BC, past);  // (transformer_xl.17)
  }

  void inspect(Device& device, const Inspector& inspector, const T* out_bcd, const PassContext& pass) const override {
    const std::vector<Index> bcd = {pass.B, pass.C, D_}, bch = {pass.B, pass.C, H()};
    report(device, inspector, "h_bcd", norm_.saved(), bcd, D_);
    report(device, inspector, "query_bch", static_cast<const T*>(query_bch_), bch, H());
    report(device, inspector, "key_bch", static_cast<const T*>(key_value_bsq_), bch, H(), 2 * H());
    report(device, inspector, "value_bch", static_cast<const T*>(key_value_bsq_ + H()), bch, H(), 2 * H());
    report(device, inspector, "rho_ph", static_cast<const T*>(rho_ph_), {distances_, H()}, H());
    report(device, inspector, "lse_bnc", static_cast<const Accum<T>*>(lse_bnc_), {pass.B, N_, pass.C}, pass.C);
    inspect_weights(device, inspector, pass);
    report(device, inspector, "t_bch", static_cast<const T*>(t_bch_), bch, H());
    report(device, inspector, "out_bcd", out_bcd, bcd, D_);
  }

  void reset(Device& device) override { position_.forward(device, rho_ph_, row_pd_, distances_); }

  void continue_after_prefill(Device& device, Index positions) override {
    const Index kept = row_of(positions - 1) + 1;
    const T* last_sq = key_value_bsq_ + (rows_ - kept) * 2 * H();
    place(device, key_sh_, last_sq, kept);
    place(device, value_sh_, last_sq + H(), kept);
  }

  void decode(Device& device, T* out_d, const T* in_d, Index position) override {
    const T* h_d = norm_.forward(device, out_d, in_d, 1);  // (transformer_xl.1)
    query_.forward(device, query_bch_, h_d, 1);            // (transformer_xl.2)
    key_value_.forward(device, key_value_bsq_, h_d, 1);    // (transformer_xl.3)
    if (position > 0 && position % segment_ == 0) {
      const Index before = row_of(position - 1) + 1;
      keep_last(device, key_sh_, before, row_of(position));
      keep_last(device, value_sh_, before, row_of(position));
    }
    const Index row = row_of(position);
    device.copy(key_sh_ + row * H(), static_cast<const T*>(key_value_bsq_), H());
    device.copy(value_sh_ + row * H(), static_cast<const T*>(key_value_bsq_ + H()), H());
    relative_attention_step<Device, T>(device,  // (transformer_xl.5)
                                       {.out_h = t_bch_,
                                        .query_h = query_bch_,
                                        .key_ch = key_sh_,
                                        .value_ch = value_sh_,
                                        .length = row + 1,
                                        .N = N_,
                                        .K = K_},
                                       terms());
    project_output(device, out_d, in_d, one_position);
  }

 private:
  Index H() const { return N_ * K_; }

  // Sine or, in the second half, cosine of channel d at a distance. In double: in float, angles are off by 5e-4 at a
  // distance of 10,000.
  static double wave(Index distance, Index d, Index D) {
    const Index half = D / 2, t = d % half;
    const double angle =
        static_cast<double>(distance) * std::pow(10000.0, -2.0 * static_cast<double>(t) / static_cast<double>(D));
    return d < half ? std::sin(angle) : std::cos(angle);
  }

  // Number of distances with their own row: all distances within reach, or clamp + 1.
  static Index distances_of(const ModelConfig& config, const BlockCapacity& capacity) {
    const Index seen =
        std::min(config.extras.memory + config.extras.segment, std::max(capacity.longest(), capacity.positions));
    return config.extras.clamp > 0 ? std::min(config.extras.clamp + 1, seen) : seen;
  }

  // Positions of a pass together with those before its chunk.
  BlockCapacity with_past(BlockCapacity capacity) const {
    if (capacity.sequence) capacity.C += std::min(memory_, capacity.sequence);
    return capacity;
  }

  // Cache row of a position's key and value: after the memory of its segment.
  Index row_of(Index position) const {
    const Index within = position % segment_;
    return std::min(memory_, position - within) + within;
  }

  // Moves the last `kept` of `count` rows to the front.
  void keep_last(Device& device, T* rows_sh, Index count, Index kept) const {
    if (count == kept) return;
    typename Device::Scope scratch(device.workspace);
    T* scratch_sh = scratch.template take<T>(kept * H());
    device.copy(scratch_sh, static_cast<const T*>(rows_sh + (count - kept) * H()), kept * H());
    device.copy(rows_sh, static_cast<const T*>(scratch_sh), kept * H());
  }

  void place(Device& device, T* to_sh, const T* from_sq, Index rows) const {
    copy_rows<Device, T>(
        device, {.to = to_sh, .to_stride = H(), .from = from_sq, .from_stride = 2 * H(), .rows = rows, .columns = H()});
  }

  void project_output(Device& device, T* out_bcd, const T* in_bcd, const PassContext& pass) {
    rows_ = past_.positions(pass) + pass.BC();
    output_.forward(device, out_bcd, t_bch_, pass.BC());        // (transformer_xl.6)
    residual_.forward(device, out_bcd, out_bcd, in_bcd, pass);  // (transformer_xl.7)
  }

  RelativeTerms<T> terms() const {
    return {.content_bias_nk = content_bias_.value,
            .position_bias_nk = position_bias_.value,
            .rho_ph = rho_ph_,
            .distances = distances_,
            .segment = segment_,
            .memory = memory_};
  }

  AttentionInputs<T> inputs(const PassContext& pass) const {
    const Index past = past_.positions(pass);
    return {.query_bch = query_bch_,
            .key_bsh = key_value_bsq_,
            .value_bsh = key_value_bsq_ + H(),
            .key_stride = 2 * H(),
            .value_stride = 2 * H(),
            .mask = {.query_offset = past, .mask_bs = pass.mask_bc ? pass.mask_bc - past : nullptr},
            .B = pass.B,
            .C = pass.C,
            .S = past + pass.C,
            .N = N_,
            .K = K_};
  }

  // Shows the attention weights, computed on the host from saved arrays by the plain loops.
  void inspect_weights(Device& device, const Inspector& inspector, const PassContext& pass) const {
    using A = Accum<T>;
    if constexpr (std::is_constructible_v<double, A>) {
      const Index B = pass.B, C = pass.C;
      const std::vector<A> query = on_host<A>(device, query_bch_, B * C, H());
      const std::vector<A> key = on_host<A>(device, key_value_bsq_, B * C, H(), 2 * H());
      const std::vector<A> rho = on_host<A>(device, rho_ph_, distances_, H());
      const std::vector<A> content = on_host<A>(device, content_bias_.value, 1, H());
      const std::vector<A> position = on_host<A>(device, position_bias_.value, 1, H());
      const std::vector<Token> mask = on_host<Token>(device, pass.mask_bc, B, C);
      const std::vector<A> lse = on_host<A>(device, lse_bnc_, B * N_, C);
      std::vector<A> weight(static_cast<std::size_t>(B * N_ * C * C));
      PlainDevice plain;
      relative_attention_weights<PlainDevice, A>(plain, weight.data(), lse.data(),
                                                 {.query_bch = query.data(),
                                                  .key_bsh = key.data(),
                                                  .value_bsh = nullptr,
                                                  .mask = {.mask_bs = pass.mask_bc ? mask.data() : nullptr},
                                                  .B = B,
                                                  .C = C,
                                                  .S = C,
                                                  .N = N_,
                                                  .K = K_},
                                                 {.content_bias_nk = content.data(),
                                                  .position_bias_nk = position.data(),
                                                  .rho_ph = rho.data(),
                                                  .distances = distances_,
                                                  .segment = segment_,
                                                  .memory = memory_});
      inspector("weight_bncs", {B, N_, C, C}, std::vector<double>(weight.begin(), weight.end()));
    }
  }

  Index D_, N_, K_, segment_, memory_, distances_;
  Norm<Device, T> norm_;
  Linear<Device, T> query_, key_value_, position_;
  Weight<T> content_bias_, position_bias_;
  Linear<Device, T> output_;
  Residual<Device, T> residual_;
  PastRows<Device, T> past_;
  T *query_bch_, *key_value_bsq_;
  const T* row_pd_;
  T *rho_ph_, *t_bch_;
  Accum<T>* lse_bnc_;
  Index rows_ = 0;  // rows of keys and values in the last pass
  PerHypothesis<T> key_sh_, value_sh_;
};

struct TransformerXlMixer {
  static constexpr MixerProperties properties = {.name = "transformer_xl",
                                                 .summary = "relative attention to a segment and a memory",
                                                 .head_projection = "query_hd",
                                                 .in_chunks = true,
                                                 .truncates = true,
                                                 .options = "segments"};
  template <class Device, class T>
  using Type = TransformerXlBlock<Device, T>;
};

}  // namespace abh
