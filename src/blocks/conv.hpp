#pragma once

#include <string>

#include "blocks/parts/norm.hpp"
#include "blocks/parts/residual.hpp"
#include "layers/causal_conv.hpp"
#include "layers/parts/causal_conv_dropout.hpp"
#include "settings/config.hpp"

namespace abh {

// Rows of earlier chunks of a sequence; a part of a feature (network/mixers.hpp).
template <class Device, class T>
class PastRows;

// The convolution block: before the mixer, each row is combined with the kernel - 1 rows before it. Chapter:
// docs/blocks/conv.md.
//
//   h_bcd   = layernorm(x_bcd),  h_bcd = 0 for c < 0                              (conv.1)
//   y_bcd   = causal_conv(h_bcd, weight_dgj)                                      (conv.2)
//   out_bcd = x_bcd + dropout(y_bcd)                                              (conv.3)
//
// Backward; layernorm_backward also adds to the gradients of the weights of the norm:
//
//   d_y_bcd = dropout_backward(d_out_bcd)                                         (conv.4)
//   d_h_bcd = causal_conv_backward(d_y_bcd),  d_weight_dgj += sum_bc d_y_bcd h_{b, c-(J-1)+j, base(d)+g}   (conv.5)
//   d_x_bcd = d_out_bcd + layernorm_backward(d_h_bcd)                             (conv.6)
//
// Saved: statistics of the norm; unless recomputed, its output. Decoding, and the next chunk of a sequence, need the
// last kernel - 1 normalised rows; decoding keeps them in a ring.
template <class Device, class T>
class ConvBlock : public Block<Device, T> {
 public:
  ConvBlock(Layout<T>& layout, const std::string& prefix, const ModelConfig& config, const BlockCapacity& capacity,
            const BlockOptions& options)
      : shape_{1, 1, config.channels, config.convolution_groups(), config.conv_kernel},
        norm_(layout, prefix + "norm_", options.norm, config.channels, capacity),
        residual_(options, sites::LayerUse::conv, config.channels),
        past_(layout, config.conv_kernel - 1, config.channels, capacity) {
    weight_ = layout.weight(prefix + "weight_dgj", {shape_.D, shape_.D / shape_.groups, shape_.kernel},
                            Init::convolution, Kind::decayed);
    if (capacity.positions) state_jd_ = layout.template state<T>((shape_.kernel - 1) * shape_.D);
  }

  void forward(Device& device, T* out_bcd, const T* in_bcd, const PassContext& pass) override {
    typename Device::Scope scratch(device.workspace);
    // A convolution cannot work in place, so the rows are in scratch memory unless they are saved.
    const T* h_bcd = norm_.forward(device, norm_.scratch_rows(scratch, pass.BC()), in_bcd, pass.BC());  // (conv.1)
    const T* past_h_bcd = past_.join(device, scratch, h_bcd, pass);
    convolve(device, out_bcd, past_h_bcd, in_bcd, pass);
    past_.leave(device, past_h_bcd, pass);
  }

  void backward(Device& device, T* d_x_bcd, const T* in_bcd, const PassContext& pass) override {
    const Index past = past_.positions(pass) * shape_.D;
    typename Device::Scope scratch(device.workspace);
    T* d_h_bcd = scratch.template take<T>(past + pass.BC() * shape_.D);
    const T* h_bcd = norm_.normed(device, norm_.scratch_rows(scratch, pass.BC()), in_bcd, pass.BC());
    const T* past_h_bcd = past_.join(device, scratch, h_bcd, pass);
    convolve_backward(device, d_h_bcd, d_x_bcd, past_h_bcd, pass);
    past_.hand_on(device, d_h_bcd, pass);
    norm_.backward(device, d_x_bcd, d_h_bcd + past, residual_.around(d_x_bcd), in_bcd, pass.BC());  // (conv.6)
  }

  void reset(Device& device) override { device.template set_zero<T>(state_jd_, (shape_.kernel - 1) * shape_.D); }

  void continue_after_prefill(Device& device, Index positions) override {
    reset(device);
    past_.put_in_ring(device, state_jd_, shape_.kernel - 1, positions);
  }

  void inspect(Device& device, const Inspector& inspector, const T* out_bcd, const PassContext& pass) const override {
    const std::vector<Index> bcd = {pass.B, pass.C, shape_.D};
    report(device, inspector, "h_bcd", norm_.saved(), bcd, shape_.D);
    report(device, inspector, "out_bcd", out_bcd, bcd, shape_.D);
  }

  void decode(Device& device, T* out_d, const T* in_d, Index position) override {
    typename Device::Scope scratch(device.workspace);
    const T* h_d = norm_.forward(device, norm_.scratch_rows(scratch, 1), in_d, 1);
    causal_conv_step<Device, T>(device, out_d, state_jd_, h_d, weight_.value, position, shape_);
    residual_.forward(device, out_d, out_d, in_d, one_position);
  }

 private:
  // A device that joins layers computes both equations in one call, if the pass has no rows of earlier chunks.
  void convolve(Device& device, T* out_bcd, const T* past_h_bcd, const T* x_bcd, const PassContext& pass) {
    if constexpr (Device::joins_layers) {
      if (past_.positions(pass) == 0) {
        return causal_conv_dropout_forward<Device, T>(device, {.out_bcd = out_bcd,
                                                               .in_bcd = past_h_bcd,
                                                               .residual_bcd = residual_.around(x_bcd),
                                                               .weight_dgj = weight_.value,
                                                               .dropout = residual_.dropout(pass),
                                                               .shape = shape_of(pass)});
      }
    }
    typename Device::Scope scratch(device.workspace);
    T* past_y_bcd = past_.scratch_rows(scratch, out_bcd, pass);
    causal_conv_forward<Device, T>(device, past_y_bcd, past_h_bcd, weight_.value, shape_of(pass));   // (conv.2)
    residual_.forward(device, out_bcd, past_y_bcd + past_.positions(pass) * shape_.D, x_bcd, pass);  // (conv.3)
  }

  void convolve_backward(Device& device, T* d_h_bcd, const T* d_out_bcd, const T* past_h_bcd, const PassContext& pass) {
    const Index past = past_.positions(pass) * shape_.D;
    if constexpr (Device::joins_layers) {
      if (past == 0) {
        return causal_conv_dropout_backward<Device, T>(device, {.d_in_bcd = d_h_bcd,
                                                                .d_weight_dgj = weight_.gradient,
                                                                .d_out_bcd = d_out_bcd,
                                                                .in_bcd = past_h_bcd,
                                                                .weight_dgj = weight_.value,
                                                                .dropout = residual_.dropout(pass),
                                                                .shape = shape_of(pass)});
      }
    }
    typename Device::Scope scratch(device.workspace);
    T* d_y_bcd = scratch.template take<T>(past + pass.BC() * shape_.D);
    device.set_zero(d_y_bcd, past);
    residual_.backward(device, d_y_bcd + past, d_out_bcd, pass);                             // (conv.4)
    causal_conv_backward<Device, T>(device, d_h_bcd, weight_.gradient, d_y_bcd, past_h_bcd,  // (conv.5)
                                    weight_.value, shape_of(pass));
  }

  CausalConvShape shape_of(const PassContext& pass) const {
    return {pass.B, past_.positions(pass) + pass.C, shape_.D, shape_.groups, shape_.kernel};
  }

  CausalConvShape shape_;
  Norm<Device, T> norm_;
  Residual<Device, T> residual_;
  PastRows<Device, T> past_;
  Weight<T> weight_;
  PerHypothesis<T> state_jd_;
};

}  // namespace abh
