#pragma once

#include <string>

#include "blocks/block.hpp"
#include "blocks/positions.hpp"
#include "layers/pooling.hpp"
#include "layers/pooling_logits.hpp"
#include "settings/config.hpp"

namespace abh {

// Payload rows of a pooling, or their gradients: N heads of K channels. The stride is the distance between two
// consecutive rows, 0 for rows that touch.
template <class Element>
struct Payload {
  Element* x_bch;
  Index stride = 0;
};

// A pooling and the logits that a learned vector a head makes of its payload, with what both save for their backward
// pass, and the state of step-by-step inference.
template <class Device, class T>
class PoolingCore {
 public:
  // name: of the vectors, (N, K).
  PoolingCore(Layout<T>& layout, const std::string& name, const ModelConfig& config, const BlockOptions& options,
              const BlockExtent& extent)
      : N_(config.heads),
        K_(config.channels / config.heads),
        window_(options.window),
        causal_(options.causal),
        decays_(config.has_alibi()),
        pool_(layout.weight(name, {N_, K_}, Init::zero, Kind::undecayed)),
        slope_n_(alibi_slopes(layout, config)),
        logit_bnc_(layout.template activation<Accum<T>>(extent.B * extent.C * N_)),
        max_bnc_(layout.template activation<Accum<T>>(extent.B * extent.C * N_)),
        sum_bnc_(layout.template activation<Accum<T>>(extent.B * extent.C * N_)),
        out_bch_(layout.template activation<T>(extent.B * extent.C * N_ * K_)) {
    if (extent.positions) state_ = layout.template state<Accum<T>>(pooling_state_size(shape(one_position), decays_));
  }

  // What the last pass or step pooled.
  const T* out_bch() const { return out_bch_; }

  // logit_bnc = x . pool_nk / sqrt(K)
  void logits(Device& device, const Payload<const T>& x, const Pass& pass) const {
    pooling_logits_forward<Device, T>(device, {.logit_bnc = logit_bnc_,
                                               .x_bch = x.x_bch,
                                               .x_stride = x.stride,
                                               .pool_nk = pool_.value,
                                               .B = pass.B,
                                               .C = pass.C,
                                               .N = N_,
                                               .K = K_});
  }

  // out_bch = pool(logit, x)
  void forward(Device& device, const Payload<const T>& x, const Pass& pass) const {
    pooling_forward<Device, T>(device, {.out_bch = out_bch_,
                                        .max_bnc = max_bnc_,
                                        .sum_bnc = sum_bnc_,
                                        .logit_bnc = logit_bnc_,
                                        .x_bch = x.x_bch,
                                        .x_stride = x.stride,
                                        .slope_n = slope_n_,
                                        .mask_bc = pass.mask_bc,
                                        .shape = shape(pass)});
  }

  // d_x, d_logit_bnc = pooling_backward(d_out); d_x is added to where `accumulate` is set, else overwritten.
  void backward(Device& device, const Payload<T>& d_x, bool accumulate, Accum<T>* d_logit_bnc, const T* d_out_bch,
                const Payload<const T>& x, const Pass& pass) const {
    pooling_backward<Device, T>(device, {.d_x_bch = d_x.x_bch,
                                         .d_x_stride = d_x.stride,
                                         .accumulate = accumulate,
                                         .d_logit_bnc = d_logit_bnc,
                                         .d_out_bch = d_out_bch,
                                         .out_bch = out_bch_,
                                         .max_bnc = max_bnc_,
                                         .sum_bnc = sum_bnc_,
                                         .logit_bnc = logit_bnc_,
                                         .x_bch = x.x_bch,
                                         .x_stride = x.stride,
                                         .slope_n = slope_n_,
                                         .mask_bc = pass.mask_bc,
                                         .shape = shape(pass)});
  }

  // d_x += d_logit_bnc pool_nk / sqrt(K),  d_pool_nk += sum_bc d_logit_bnc x / sqrt(K)
  void logits_backward(Device& device, const Payload<T>& d_x, const Accum<T>* d_logit_bnc, const Payload<const T>& x,
                       const Pass& pass) const {
    pooling_logits_backward<Device, T>(device, {.d_x_bch = d_x.x_bch,
                                                .d_x_stride = d_x.stride,
                                                .d_pool_nk = pool_.gradient,
                                                .d_logit_bnc = d_logit_bnc,
                                                .x_bch = x.x_bch,
                                                .x_stride = x.stride,
                                                .pool_nk = pool_.value,
                                                .B = pass.B,
                                                .C = pass.C,
                                                .N = N_,
                                                .K = K_});
  }

  void start(Device& device) const { pooling_start<Device, T>(device, state_, shape(one_position), decays_); }

  // One position: reads the logits of x_h.
  void step(Device& device, const T* x_h) const {
    pooling_step<Device, T>(device, out_bch_, state_, logit_bnc_, x_h, shape(one_position), slope_n_);
  }

 private:
  PoolingShape shape(const Pass& pass) const { return {pass.B, pass.C, N_, K_, window_, causal_}; }

  Index N_, K_, window_;
  bool causal_, decays_;
  Weight<T> pool_;
  const Accum<T>* slope_n_;  // null without decay
  Accum<T>* logit_bnc_;
  Accum<T>* max_bnc_;
  Accum<T>* sum_bnc_;
  T* out_bch_;
  Accum<T>* state_ = nullptr;
};

}  // namespace abh
