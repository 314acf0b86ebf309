#pragma once

#include <string>

#include "blocks/parts/norm.hpp"
#include "blocks/parts/residual.hpp"
#include "settings/config.hpp"

namespace abh {

// The identity block: a mixer that does not combine positions. A network of identity blocks reads one token at a time;
// it is the baseline for the other mixers, and the smallest example of a block. Chapter: docs/blocks/identity.md.
//
//   y_bcd = layernorm(x_bcd)                                          (identity.1)
//   out_bcd = x_bcd + dropout(y_bcd)                                  (identity.2)
//
// Backward; layernorm_backward also adds to the gradients of the weights of the norm:
//
//   d_y_bcd = dropout_backward(d_out_bcd)                             (identity.3)
//   d_x_bcd = d_out_bcd + layernorm_backward(d_y_bcd)                 (identity.4)
//
// Saved: statistics of the norm; unless recomputed, its output. Decoding keeps no state.
template <class Device, class T>
class IdentityBlock : public Block<Device, T> {
 public:
  IdentityBlock(Layout<T>& layout, const std::string& prefix, const ModelConfig& config, const BlockCapacity& capacity,
                const BlockOptions& options)
      : D_(config.channels),
        norm_(layout, prefix + "norm_", options.norm, D_, capacity),
        residual_(options, sites::LayerUse::mixer, D_) {}

  void forward(Device& device, T* out_bcd, const T* in_bcd, const PassContext& pass) override {
    const T* y_bcd = norm_.forward(device, out_bcd, in_bcd, pass.BC());  // (identity.1)
    residual_.forward(device, out_bcd, y_bcd, in_bcd, pass);             // (identity.2)
  }

  void backward(Device& device, T* d_x_bcd, const T* in_bcd, const PassContext& pass) override {
    typename Device::Scope scratch(device.workspace);
    T* d_y_bcd = scratch.template take<T>(pass.BC() * D_);
    residual_.backward(device, d_y_bcd, d_x_bcd, pass);                                      // (identity.3)
    norm_.backward(device, d_x_bcd, d_y_bcd, residual_.around(d_x_bcd), in_bcd, pass.BC());  // (identity.4)
  }

  void inspect(Device& device, const Inspector& inspector, const T* out_bcd, const PassContext& pass) const override {
    const std::vector<Index> bcd = {pass.B, pass.C, D_};
    report(device, inspector, "y_bcd", norm_.saved(), bcd, D_);
    report(device, inspector, "out_bcd", out_bcd, bcd, D_);
  }

  void decode(Device& device, T* out_d, const T* in_d, Index) override { forward(device, out_d, in_d, one_position); }

 private:
  Index D_;
  Norm<Device, T> norm_;
  Residual<Device, T> residual_;
};

struct IdentityMixer {
  static constexpr MixerProperties properties = {
      .name = "identity", .summary = "normalised rows, without mixing", .in_chunks = true, .truncates = true};
  template <class Device, class T>
  using Type = IdentityBlock<Device, T>;
};

}  // namespace abh
