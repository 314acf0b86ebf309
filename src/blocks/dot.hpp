#pragma once

#include <string>

#include "blocks/parts/attention_core.hpp"
#include "blocks/parts/linear.hpp"
#include "blocks/parts/norm.hpp"
#include "blocks/parts/residual.hpp"
#include "settings/config.hpp"

namespace abh {

// Parts of features (network/mixers.hpp).
template <class Device, class T>
class Rescale;
template <class Device, class T>
class Rotary;
template <class Device, class T>
class PatternedScores;

// The dot-product attention block: multi-head softmax attention (Vaswani et al., 2017), the baseline for the other
// mixers. Chapter: docs/blocks/dot.md.
//
// Rows (bch) and the matrices that compute them (hd) have the same names. q is the row of query, key and value.
//
//   h_bcd = layernorm(x_bcd)                                               (dot.1)
//   query_bch = sum_d h_bcd query_hd {+ query_bias_h | bias},
//   key_bch = sum_d h_bcd key_hd {+ key_bias_h | bias},
//   value_bch = sum_d h_bcd value_hd {+ value_bias_h | bias}               (dot.2)
//   query_bch, key_bch <- rescale(query_bch, key_bch) where rescale > 0      (dot.3)
//   query_bch, key_bch <- rotary(query_bch, key_bch) where positions are rotary   (dot.4)
//   t_bch = attention(query_bch, key_bch, value_bch)                       (dot.5)
//   y_bcd = sum_h t_bch output_dh {+ output_bias_d | bias}                 (dot.6)
//   out_bcd = x_bcd + dropout(y_bcd)                                       (dot.7)
//
// Backward; bias gradients only with biases. layernorm_backward also adds to the gradients of the weights of the norm:
//
//   d_y_bcd = dropout_backward(d_out_bcd)                                  (dot.8)
//   d_output_dh += sum_bc d_y_bcd t_bch,  d_output_bias_d += sum_bc d_y_bcd   (dot.9)
//   d_t_bch = sum_d d_y_bcd output_dh                                      (dot.10)
//   d_query_bch, d_key_bch, d_value_bch = attention_backward(d_t_bch)      (dot.11)
//   d_query_bch, d_key_bch <- rotary_backward(d_query_bch, d_key_bch) where positions are rotary   (dot.12)
//   d_query_bch, d_key_bch <- rescale_backward(d_query_bch, d_key_bch) where rescale > 0      (dot.13)
//   d_query_hd += sum_bc d_query_bch h_bcd,  d_query_bias_h += sum_bc d_query_bch,
//   d_key_hd += sum_bc d_key_bch h_bcd,  d_key_bias_h += sum_bc d_key_bch,
//   d_value_hd += sum_bc d_value_bch h_bcd,  d_value_bias_h += sum_bc d_value_bch   (dot.14)
//   d_h_bcd = sum_h (d_query_bch query_hd + d_key_bch key_hd + d_value_bch value_hd)   (dot.15)
//   d_x_bcd = d_out_bcd + layernorm_backward(d_h_bcd)                      (dot.16)
//
// With rescale > 0, the factor of the scores is rescale / K instead of 1/sqrt(K). With span > 0, the mixer has the
// weight span_n: the learned attention span of each head (extras/adaptive_span/adaptive_span.hpp).
//
// Saved: h (unless recomputed), query, key, value, t, the log-sum-exp of the scores, and the standard deviations of
// rescaled rows. Decoding keeps a KV cache with the final keys; with a window it is a ring of the positions in the
// window.
template <class Device, class T>
class DotBlock : public Block<Device, T> {
 public:
  DotBlock(Layout<T>& layout, const std::string& prefix, const ModelConfig& config, const BlockCapacity& capacity,
           const BlockOptions& options)
      : D_(config.channels),
        N_(config.heads),
        K_(config.mixer_head_channels()),
        H_(N_ * K_),
        norm_(layout, prefix + "norm_", options.norm, D_, capacity),
        qkv_(layout, prefix, {"query_hd", "key_hd", "value_hd"}, H_, D_, Init::normal, config.attention_bias),
        output_(layout, prefix, {"output_dh"}, D_, H_, Init::normal_residual, config.attention_bias),
        residual_(options, sites::LayerUse::mixer, D_),
        qkv_bcq_(layout.template activation<T>(capacity.B * capacity.C * 3 * H_)),
        rescale_(layout, config.rescale > 0, capacity, 2 * N_, K_, 3 * H_),
        rotary_(layout, config, capacity, 2 * N_, 3 * H_),
        core_(layout, config, options, capacity, true, config.rescale / static_cast<double>(K_),
              PatternedScores<Device, T>::of(layout, config, options, capacity), {layout, prefix, config}) {}

  void forward(Device& device, T* out_bcd, const T* in_bcd, const PassContext& pass) override {
    project_input(device, out_bcd, in_bcd, pass);
    core_.forward(device, qkv(), pass);  // (dot.5)
    project_output(device, out_bcd, in_bcd, pass);
  }

  void backward(Device& device, T* d_x_bcd, const T* in_bcd, const PassContext& pass) override {
    const Index BC = pass.BC();
    typename Device::Scope scratch(device.workspace);
    T* d_y_bcd = scratch.template take<T>(BC * D_);
    T* d_t_bch = scratch.template take<T>(BC * H_);
    T* d_qkv_bcq = scratch.template take<T>(BC * 3 * H_);
    // The side stream may still read d_y when d_h is written. Without a side stream, d_h can reuse d_y.
    T* d_h_bcd = Device::SideStream::runs_beside ? scratch.template take<T>(BC * D_) : d_y_bcd;
    typename Device::SideStream weights(device);  // weight gradients run concurrently

    residual_.backward(device, d_y_bcd, d_x_bcd, pass);                                           // (dot.8)
    output_.backward_weight(weights.fork(), d_y_bcd, core_.t_bch(), BC);                          // (dot.9)
    output_.backward_input(device, d_t_bch, d_y_bcd, BC);                                         // (dot.10)
    core_.backward(device, QueryKeyValue<T>::side_by_side(d_qkv_bcq, H_), d_t_bch, qkv(), pass);  // (dot.11)
    rotary_.backward(device, d_qkv_bcq, d_qkv_bcq, pass);                                         // (dot.12)
    rescale_.backward(device, d_qkv_bcq, rescaled(device, scratch, pass), BC);                    // (dot.13)
    const T* h_bcd = norm_.normed(device, d_h_bcd, in_bcd, BC);
    qkv_.backward_weight(weights.fork(), d_qkv_bcq, h_bcd, BC);  // (dot.14)
    if (h_bcd == d_h_bcd) weights.join();                        // h_bcd was recomputed into d_h_bcd
    qkv_.backward_input(device, d_h_bcd, d_qkv_bcq, BC);         // (dot.15)
    norm_.backward(device, d_x_bcd, d_h_bcd, residual_.around(d_x_bcd), in_bcd, BC);  // (dot.16)
  }

  void inspect(Device& device, const Inspector& inspector, const T* out_bcd, const PassContext& pass) const override {
    const std::vector<Index> bcd = {pass.B, pass.C, D_};
    report(device, inspector, "h_bcd", norm_.saved(), bcd, D_);
    core_.inspect(device, inspector, qkv(), "value_bch", pass);
    report(device, inspector, "out_bcd", out_bcd, bcd, D_);
  }

  void reset(Device& device) override { core_.reset(device); }
  void continue_after_prefill(Device& device, Index positions) override {
    core_.continue_after_prefill(device, positions);
  }
  void decode(Device& device, T* out_d, const T* in_d, Index position) override {
    project_input(device, out_d, in_d, step_at(position));
    device.copy(core_.key_h(position), qkv().key_bsh, H_);
    device.copy(core_.value_h(position), qkv().value_bsh, H_);
    core_.decode(device, qkv().query_bch, position);
    project_output(device, out_d, in_d, one_position);
  }

 private:
  void project_input(Device& device, T* scratch_bcd, const T* in_bcd, const PassContext& pass) {
    const T* h_bcd = norm_.forward(device, scratch_bcd, in_bcd, pass.BC());  // (dot.1)
    qkv_.forward(device, qkv_bcq_, h_bcd, pass.BC());                        // (dot.2)
    rescale_.forward(device, qkv_bcq_, pass.BC());                           // (dot.3)
    rotary_.forward(device, qkv_bcq_, qkv_bcq_, pass);                       // (dot.4)
  }

  // Queries and keys after rescale and before rotary: the saved arrays, or, with rotary, a copy that is rotated back.
  const T* rescaled(Device& device, typename Device::Scope& scratch, const PassContext& pass) const {
    if (!rescale_.present() || !rotary_.present()) return qkv_bcq_;
    T* rescaled_bcq = scratch.template take<T>(pass.BC() * 3 * H_);
    rotary_.backward(device, rescaled_bcq, qkv_bcq_, pass);
    return rescaled_bcq;
  }

  void project_output(Device& device, T* out_bcd, const T* in_bcd, const PassContext& pass) {
    output_.forward(device, out_bcd, core_.t_bch(), pass.BC());  // (dot.6)
    residual_.forward(device, out_bcd, out_bcd, in_bcd, pass);   // (dot.7)
  }

  QueryKeyValue<const T> qkv() const { return QueryKeyValue<const T>::side_by_side(qkv_bcq_, H_); }

  Index D_, N_, K_, H_;
  Norm<Device, T> norm_;
  Linear<Device, T> qkv_, output_;
  Residual<Device, T> residual_;
  T* qkv_bcq_;
  // They transform queries and keys, which are the first heads of a row.
  Rescale<Device, T> rescale_;
  Rotary<Device, T> rotary_;
  AttentionCore<Device, T, PatternedScores> core_;
};

struct DotMixer {
  static constexpr MixerProperties properties = {.name = "dot",
                                                 .summary = "multi-head softmax attention",
                                                 .golden_case = "dot_product_attention",
                                                 .head_projection = "query_hd",
                                                 .has_cache = true,
                                                 .has_scores = true,
                                                 .in_chunks = true,
                                                 .truncates = true,
                                                 .options = "span rotary rescale pattern"};
  template <class Device, class T>
  using Type = DotBlock<Device, T>;
};

}  // namespace abh
