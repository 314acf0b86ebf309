#pragma once

#include <string>

#include "blocks/parts/norm.hpp"
#include "blocks/parts/pooling.hpp"
#include "blocks/parts/residual.hpp"
#include "settings/config.hpp"

namespace abh {

// The average block: the output is the mean of the rows in the window, up to the own position, with equal weights. Only
// its norm has weights. It is the baseline that shows the benefit of attention over averaging. Chapter:
// docs/blocks/average.md.
//
//   h_bcd = layernorm(x_bcd)                                          (average.1)
//   y_bcd = pool(0, h_bcd)                                            (average.2)
//   out_bcd = x_bcd + dropout(y_bcd)                                  (average.3)
//
// Backward; the logits are constants, all 0. layernorm_backward also adds to the gradients of the weights of the norm:
//
//   d_y_bcd = dropout_backward(d_out_bcd)                             (average.4)
//   d_h_bcd = pool_backward(d_y_bcd)                                  (average.5)
//   d_x_bcd = d_out_bcd + layernorm_backward(d_h_bcd)                 (average.6)
//
// Saved: statistics of the norm, y, maxima and sums of the pooling; unless recomputed, h. The result does not depend on
// the number of heads; threads divide the work by heads. Decoding keeps the state of the pooling.
template <class Device, class T>
class AverageBlock : public Block<Device, T> {
 public:
  AverageBlock(Layout<T>& layout, const std::string& prefix, const ModelConfig& config, const BlockCapacity& capacity,
               const BlockOptions& options)
      : D_(config.channels),
        N_(config.heads),
        norm_(layout, prefix + "norm_", options.norm, D_, capacity),
        residual_(options, sites::LayerUse::mixer, D_),
        zero_bnc_(
            layout.template constant<Accum<T>>("zero_bnc", capacity.B * capacity.C * N_, [](Index) { return 0.0; })),
        pooling_(layout,
                 {.B = capacity.B,
                  .C = capacity.C,
                  .N = N_,
                  .K = D_ / N_,
                  .window = options.window,
                  .causal = options.causal},
                 false, nullptr, capacity) {}

  void forward(Device& device, T* out_bcd, const T* in_bcd, const PassContext& pass) override {
    const T* h_bcd = norm_.forward(device, out_bcd, in_bcd, pass.BC());    // (average.1)
    pooling_.forward(device, zero_bnc_, {h_bcd}, pass);                    // (average.2)
    residual_.forward(device, out_bcd, pooling_.out_bch(), in_bcd, pass);  // (average.3)
  }

  void backward(Device& device, T* d_x_bcd, const T* in_bcd, const PassContext& pass) override {
    const Index BC = pass.BC();
    typename Device::Scope scratch(device.workspace);
    T* d_y_bcd = scratch.template take<T>(BC * D_);
    T* d_h_bcd = scratch.template take<T>(BC * D_);
    T* scratch_bcd = norm_.scratch_rows(scratch, BC);
    Accum<T>* d_zero_bnc = scratch.template take<Accum<T>>(BC * N_);  // not used

    residual_.backward(device, d_y_bcd, d_x_bcd, pass);  // (average.4)
    const T* h_bcd = norm_.normed(device, scratch_bcd, in_bcd, BC);
    pooling_.backward(device, {d_h_bcd}, false, d_zero_bnc, d_y_bcd, nullptr, zero_bnc_, {h_bcd}, pass);  // (average.5)
    norm_.backward(device, d_x_bcd, d_h_bcd, residual_.around(d_x_bcd), in_bcd, BC);                      // (average.6)
  }

  void reset(Device& device) override { pooling_.reset(device); }
  void continue_after_prefill(Device& device, Index positions) override {
    pooling_.continue_after_prefill(device, positions);
  }

  void inspect(Device& device, const Inspector& inspector, const T* out_bcd, const PassContext& pass) const override {
    const std::vector<Index> bcd = {pass.B, pass.C, D_};
    report(device, inspector, "h_bcd", norm_.saved(), bcd, D_);
    pooling_.inspect_weights(device, inspector, "weight_bncs", zero_bnc_, pass);
    report(device, inspector, "y_bcd", pooling_.out_bch(), bcd, D_);
    report(device, inspector, "out_bcd", out_bcd, bcd, D_);
  }

  void decode(Device& device, T* out_d, const T* in_d, Index) override {
    const T* h_d = norm_.forward(device, out_d, in_d, 1);
    pooling_.decode(device, zero_bnc_, h_d);
    residual_.forward(device, out_d, pooling_.out_bch(), in_d, one_position);
  }

 private:
  Index D_, N_;
  Norm<Device, T> norm_;
  Residual<Device, T> residual_;
  const Accum<T>* zero_bnc_;
  Pooling<Device, T> pooling_;
};

struct AverageMixer {
  static constexpr MixerProperties properties = {.name = "average",
                                                 .summary = "mean of all positions so far",
                                                 .has_window = true,
                                                 .pools = true,
                                                 .in_chunks = true,
                                                 .truncates = true};
  template <class Device, class T>
  using Type = AverageBlock<Device, T>;
};

}  // namespace abh
