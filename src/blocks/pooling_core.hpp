#pragma once

#include <string>

#include "blocks/pooling_past.hpp"
#include "layers/pooling.hpp"
#include "layers/pooling_logits.hpp"

namespace abh {

// A pooling and the logits that a learned vector a head makes of its payload, with what both save for their backward
// pass, and the state of step-by-step inference.
template <class Device, class T>
class PoolingCore {
 public:
  // name: of the vectors, (N, K).
  PoolingCore(Layout<T>& layout, const std::string& name, Index N, Index K, Index window, const BlockExtent& extent)
      : N_(N),
        K_(K),
        // Of the positions of a sequence in chunks, a wider window sees no more.
        window_(extent.sequence && window >= extent.sequence ? 0 : window),
        pool_(layout.weight(name, {N, K}, Init::zero, Kind::undecayed)),
        logit_bnc_(layout.template activation<Accum<T>>(extent.B * extent.C * N)),
        past_(layout, shape(1, 1), extent),
        max_bnc_(layout.template activation<Accum<T>>((extent.B * extent.C + past_.most()) * N)),
        sum_bnc_(layout.template activation<Accum<T>>((extent.B * extent.C + past_.most()) * N)),
        out_bch_(layout.template activation<T>((extent.B * extent.C + past_.most()) * N * K)) {
    if (extent.positions) state_ = layout.template state<Accum<T>>(pooling_state_size(shape(1, 1)));
  }

  // What the last pass or step pooled.
  const T* out_bch() const { return out_bch_ + past_.most() * N_ * K_; }

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
    typename Device::Scope scratch(device.workspace);
    const auto in = past_.join(device, scratch, logit_bnc_, x, pass);
    pooling_forward<Device, T>(device, {.out_bch = all_out(pass),
                                        .max_bnc = max_bnc_,
                                        .sum_bnc = sum_bnc_,
                                        .logit_bnc = in.logit_bnc,
                                        .x_bch = in.x.x_bch,
                                        .x_stride = in.x.stride,
                                        .mask_bc = in.mask_bc,
                                        .shape = shape(in.B, in.C)});
    past_.leave(device, in, max_bnc_, sum_bnc_, all_out(pass), pass);
  }

  // d_x, d_logit_bnc = pooling_backward(d_out); d_x is added to where `accumulate` is set, else overwritten.
  void backward(Device& device, const Payload<T>& d_x, bool accumulate, Accum<T>* d_logit_bnc, const T* d_out_bch,
                const Payload<const T>& x, const Pass& pass) const {
    typename Device::Scope scratch(device.workspace);
    const auto in = past_.join(device, scratch, logit_bnc_, x, pass);
    const typename PoolingPast<Device, T>::Gradients d_chunk{d_x, accumulate, d_logit_bnc, d_out_bch, nullptr};
    const auto d = past_.join(device, scratch, d_chunk, pass);
    pooling_backward<Device, T>(device, {.d_x_bch = d.d_x.x_bch,
                                         .d_x_stride = d.d_x.stride,
                                         .accumulate = d.accumulate,
                                         .d_logit_bnc = d.d_logit_bnc,
                                         .d_out_bch = d.d_out_bch,
                                         .d_lse_bnc = d.d_lse_bnc,
                                         .out_bch = all_out(pass),
                                         .max_bnc = max_bnc_,
                                         .sum_bnc = sum_bnc_,
                                         .logit_bnc = in.logit_bnc,
                                         .x_bch = in.x.x_bch,
                                         .x_stride = in.x.stride,
                                         .mask_bc = in.mask_bc,
                                         .shape = shape(in.B, in.C)});
    past_.split(device, d_chunk, d, pass);
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

  void start(Device& device) const { pooling_start<Device, T>(device, state_, shape(1, 1)); }

  // One position: reads the logits of x_h.
  void step(Device& device, const T* x_h) const {
    pooling_step<Device, T>(device, out_bch_, state_, logit_bnc_, x_h, shape(1, 1));
  }

 private:
  PoolingShape shape(Index B, Index C) const { return {B, C, N_, K_, window_}; }
  // What was pooled, with the past before a chunk.
  T* all_out(const Pass& pass) const { return out_bch_ + (past_.most() - past_.positions(pass)) * N_ * K_; }

  Index N_, K_, window_;
  Weight<T> pool_;
  Accum<T>* logit_bnc_;
  PoolingPast<Device, T> past_;
  Accum<T>* max_bnc_;
  Accum<T>* sum_bnc_;
  T* out_bch_;
  Accum<T>* state_ = nullptr;
};

}  // namespace abh
