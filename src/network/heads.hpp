#pragma once

#include <memory>

#include "base/extras.hpp"
#include "blocks/block.hpp"
#include "blocks/parts/linear.hpp"
#include "blocks/parts/norm.hpp"
#include "settings/config.hpp"

namespace abh {

// Output head: computes rows of logits, each with one target.
template <class Device, class T>
class Head {
 public:
  virtual ~Head() = default;

  // Number of rows of a pass, number of logits per row, and distance between the starts of rows in an array of logits.
  virtual Index rows(const PassContext&) const = 0;
  virtual Index columns() const = 0;
  virtual Index stride() const { return columns(); }

  // x_bcd is not changed; backward needs it again.
  virtual void forward(Device&, T* logits, const T* x_bcd, const PassContext&) = 0;
  // Overwrites d_x_bcd and adds to the weight gradients.
  virtual void backward(Device&, T* d_x_bcd, const T* d_logits, const T* x_bcd, const PassContext&) = 0;
};

// Logits of the next token at every position, with the table of tokens; norm and bias are optional:
//
//   logits_bcv = scale (norm(x_bcd) token_vd^T + bias_v)
template <class Device, class T>
class LanguageHead : public Head<Device, T> {
 public:
  LanguageHead(Layout<T>& layout, const ModelConfig& config, const BlockCapacity& capacity, const Weight<T>& token)
      : D_(config.channels),
        V_(config.vocabulary),
        scale_(config.logit_scale),
        has_norm_(config.has_final_norm()),
        norm_(layout, config.own_prefix() + "final_norm.", has_norm_, D_, capacity),
        token_(token) {
    if (config.logit_bias) bias_ = layout.weight("logit_bias_v", {V_}, Init::zero, Kind::undecayed);
  }

  Index rows(const PassContext& pass) const override { return pass.BC(); }
  Index columns() const override { return V_; }
  // On a GPU, rows begin at multiples of 16 bytes: its fast matrix products need them.
  Index stride() const override { return Device::joins_layers ? (V_ + 7) / 8 * 8 : V_; }

  void forward(Device& device, T* logits_bcv, const T* x_bcd, const PassContext& pass) override {
    const Index BC = pass.BC();
    typename Device::Scope scratch(device.workspace);
    T* scratch_bcd = norm_.scratch_rows(scratch, BC);
    const T* h_bcd = norm_.forward(device, scratch_bcd, x_bcd, BC);
    linear_forward<Device, T>(device, {.out_bco = logits_bcv,
                                       .in_bci = h_bcd,
                                       .weight_oi = token_.value,
                                       .bias_o = bias_.value,
                                       .shape = shape(BC),
                                       .scale = scale_});
  }

  void backward(Device& device, T* d_x_bcd, const T* d_logits_bcv, const T* x_bcd, const PassContext& pass) override {
    const Index BC = pass.BC();
    const T* h_bcd = norm_.normed(device, d_x_bcd, x_bcd, BC);
    typename Device::SideStream weights(device);  // weight gradients run concurrently
    linear_backward_weight<Device, T>(weights.fork(), {.d_weight_oi = token_.gradient,
                                                       .d_bias_o = bias_.gradient,
                                                       .d_out_bco = d_logits_bcv,
                                                       .in_bci = h_bcd,
                                                       .shape = shape(BC),
                                                       .scale = scale_});
    if (h_bcd == d_x_bcd) weights.join();  // h_bcd was recomputed into d_x_bcd
    linear_backward_input<Device, T>(device, {.d_in_bci = d_x_bcd,
                                              .d_out_bco = d_logits_bcv,
                                              .weight_oi = token_.value,
                                              .shape = shape(BC),
                                              .scale = scale_});
    if (has_norm_) norm_.backward(device, d_x_bcd, d_x_bcd, nullptr, x_bcd, BC);
  }

 private:
  LinearShape shape(Index BC) const { return {.BC = BC, .I = D_, .O = V_, .out_stride = stride()}; }

  Index D_, V_;
  double scale_;
  bool has_norm_;
  Norm<Device, T> norm_;
  Weight<T> token_, bias_;
};

// Head with one row of logits per sequence; a part of a feature (network/mixers.hpp).
template <class Device, class T>
class ClassifierHead;

// Head of a network. token: table of tokens, which the head uses unless logits have their own table.
template <class Device, class T>
std::unique_ptr<Head<Device, T>> make_head(Layout<T>& layout, const ModelConfig& config, const BlockCapacity& capacity,
                                           const Weight<T>& token) {
  if constexpr (has_extras) {
    if (config.classes > 0) return std::make_unique<ClassifierHead<Device, T>>(layout, config, capacity);
  }
  if (!config.has_encoder() || config.embeddings != "separate") {
    return std::make_unique<LanguageHead<Device, T>>(layout, config, capacity, token);
  }
  const Weight<T> logit =
      layout.weight("decoder.logit_vd", {config.vocabulary, config.channels}, Init::normal, Kind::decayed);
  return std::make_unique<LanguageHead<Device, T>>(layout, config, capacity, logit);
}

}  // namespace abh
