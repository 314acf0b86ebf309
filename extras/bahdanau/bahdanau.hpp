#pragma once

#include <string>

#include "blocks/parts/attention_core.hpp"
#include "blocks/parts/linear.hpp"
#include "blocks/parts/norm.hpp"
#include "blocks/parts/residual.hpp"
#include "extras/bahdanau/additive_scores.hpp"
#include "settings/config.hpp"

namespace abh {

// Additive attention block in its original form: the score of a pair is a small network of the sum of query and key
// (Bahdanau, Cho, Bengio, 2015). The additive attention of the Fastformer (additive.hpp) differs: it scores single
// positions. Chapter: extras/bahdanau/README.md.
//
// Rows (bch) and the matrices that make them (hd) have the same names; q = channels of query, key and value together.
//
//   h_bcd = layernorm(x_bcd)                                               (bahdanau.1)
//   query_bch = sum_d h_bcd query_hd,
//   key_bch = sum_d h_bcd key_hd,
//   value_bch = sum_d h_bcd value_hd                                       (bahdanau.2)
//   t_bch = bahdanau_attention(query_bch, key_bch, value_bch, score_nk)    (bahdanau.3)
//   y_bcd = sum_h t_bch output_dh                                          (bahdanau.4)
//   out_bcd = x_bcd + dropout(y_bcd)                                       (bahdanau.5)
//
// Backward pass. layernorm_backward also accumulates the gradients of the norm's weights, bahdanau_attention_backward
// those of score_nk:
//
//   d_y_bcd = dropout_backward(d_out_bcd)                                  (bahdanau.6)
//   d_output_dh += sum_bc d_y_bcd t_bch                                    (bahdanau.7)
//   d_t_bch = sum_d d_y_bcd output_dh                                      (bahdanau.8)
//   d_query_bch, d_key_bch, d_value_bch = bahdanau_attention_backward(d_t_bch)   (bahdanau.9)
//   d_query_hd += sum_bc d_query_bch h_bcd,
//   d_key_hd += sum_bc d_key_bch h_bcd,
//   d_value_hd += sum_bc d_value_bch h_bcd                                 (bahdanau.10)
//   d_h_bcd = sum_h (d_query_bch query_hd + d_key_bch key_hd + d_value_bch value_hd)   (bahdanau.11)
//   d_x_bcd = d_out_bcd + layernorm_backward(d_h_bcd)                      (bahdanau.12)
//
// ALiBi is added to the scores. Rotary positions are not used: rotating query and key by one angle preserves their
// product, but not a function of their sum.
//
// Saved: h (unless recomputed), query, key, value, t and the log-sum-exp of every row of scores. Inference: a KV cache.
template <class Device, class T>
class BahdanauBlock : public Block<Device, T> {
 public:
  BahdanauBlock(Layout<T>& layout, const std::string& prefix, const ModelConfig& config, const BlockCapacity& capacity,
                const BlockOptions& options)
      : D_(config.channels),
        H_(config.heads * config.mixer_head_channels()),
        norm_(layout, prefix + "norm_", options.norm, D_, capacity),
        qkv_(layout, prefix, {"query_hd", "key_hd", "value_hd"}, H_, D_, Init::normal),
        scores_(AdditiveScores<Device, T>::of(layout, prefix, config)),
        output_(layout, prefix, {"output_dh"}, D_, H_, Init::normal_residual),
        residual_(options, sites::LayerUse::mixer, D_),
        qkv_bcq_(layout.template activation<T>(capacity.B * capacity.C * 3 * H_)),
        core_(layout, config, options, capacity, true, 0, scores_) {}

  void forward(Device& device, T* out_bcd, const T* in_bcd, const PassContext& pass) override {
    project_input(device, out_bcd, in_bcd, pass);
    core_.forward(device, qkv(), pass);  // (bahdanau.3)
    project_output(device, out_bcd, in_bcd, pass);
  }

  void backward(Device& device, T* d_x_bcd, const T* in_bcd, const PassContext& pass) override {
    const Index BC = pass.BC();
    typename Device::Scope scratch(device.workspace);
    T* d_y_bcd = scratch.template take<T>(BC * D_);
    T* d_t_bch = scratch.template take<T>(BC * H_);
    T* d_qkv_bcq = scratch.template take<T>(BC * 3 * H_);
    // A concurrent side stream may still read d_y when d_h is written. Without one, d_h reuses the array of d_y.
    T* d_h_bcd = Device::SideStream::runs_beside ? scratch.template take<T>(BC * D_) : d_y_bcd;
    typename Device::SideStream weights(device);  // computes gradients of weights concurrently

    residual_.backward(device, d_y_bcd, d_x_bcd, pass);                                           // (bahdanau.6)
    output_.backward_weight(weights.fork(), d_y_bcd, core_.t_bch(), BC);                          // (bahdanau.7)
    output_.backward_input(device, d_t_bch, d_y_bcd, BC);                                         // (bahdanau.8)
    core_.backward(device, QueryKeyValue<T>::side_by_side(d_qkv_bcq, H_), d_t_bch, qkv(), pass);  // (bahdanau.9)
    const T* h_bcd = norm_.normed(device, d_h_bcd, in_bcd, BC);
    qkv_.backward_weight(weights.fork(), d_qkv_bcq, h_bcd, BC);  // (bahdanau.10)
    if (h_bcd == d_h_bcd) weights.join();                        // h was recomputed into the array of d_h
    qkv_.backward_input(device, d_h_bcd, d_qkv_bcq, BC);         // (bahdanau.11)
    norm_.backward(device, d_x_bcd, d_h_bcd, residual_.around(d_x_bcd), in_bcd, BC);  // (bahdanau.12)
  }

  void inspect(Device& device, const Inspector& inspector, const T* out_bcd, const PassContext& pass) const override {
    const std::vector<Index> bcd = {pass.B, pass.C, D_};
    report(device, inspector, "h_bcd", norm_.saved(), bcd, D_);
    core_.inspect(device, inspector, qkv(), "value_bch", pass);
    report(device, inspector, "out_bcd", out_bcd, bcd, D_);
  }

  void continue_after_prefill(Device& device, Index positions) override {
    core_.continue_after_prefill(device, positions);
  }
  void decode(Device& device, T* out_d, const T* in_d, Index position) override {
    project_input(device, out_d, in_d, one_position);
    device.copy(core_.key_h(position), qkv().key_bsh, H_);
    device.copy(core_.value_h(position), qkv().value_bsh, H_);
    core_.decode(device, qkv().query_bch, position);
    project_output(device, out_d, in_d, one_position);
  }

 private:
  void project_input(Device& device, T* scratch_bcd, const T* in_bcd, const PassContext& pass) {
    const T* h_bcd = norm_.forward(device, scratch_bcd, in_bcd, pass.BC());  // (bahdanau.1)
    qkv_.forward(device, qkv_bcq_, h_bcd, pass.BC());                        // (bahdanau.2)
  }

  void project_output(Device& device, T* out_bcd, const T* in_bcd, const PassContext& pass) {
    output_.forward(device, out_bcd, core_.t_bch(), pass.BC());  // (bahdanau.4)
    residual_.forward(device, out_bcd, out_bcd, in_bcd, pass);   // (bahdanau.5)
  }

  QueryKeyValue<const T> qkv() const { return QueryKeyValue<const T>::side_by_side(qkv_bcq_, H_); }

  Index D_, H_;
  Norm<Device, T> norm_;
  Linear<Device, T> qkv_;
  AdditiveScores<Device, T> scores_;
  Linear<Device, T> output_;
  Residual<Device, T> residual_;
  T* qkv_bcq_;
  AttentionCore<Device, T, AdditiveScores> core_;
};

struct BahdanauMixer {
  static constexpr MixerProperties properties = {.name = "bahdanau",
                                                 .summary = "attention with additive (MLP) scores",
                                                 .golden_case = "bahdanau_attention",
                                                 .head_projection = "query_hd",
                                                 .has_cache = true,
                                                 .has_scores = true,
                                                 .in_chunks = true,
                                                 .truncates = true};
  template <class Device, class T>
  using Type = BahdanauBlock<Device, T>;
};

}  // namespace abh
