#pragma once

#include <string>

#include "blocks/parts/pooling.hpp"
#include "blocks/parts/positions.hpp"
#include "layers/pooling_logits.hpp"
#include "settings/config.hpp"

namespace abh {

// Pooling with its logits, the scalar products of x with a learned vector per head. A device with joins_layers fuses
// both if a pass contains whole sequences.
template <class Device, class T>
class PoolingCore {
 public:
  // name: of the learned vectors, (N, K).
  PoolingCore(Layout<T>& layout, const std::string& name, const ModelConfig& config, const BlockOptions& options,
              const BlockCapacity& capacity)
      : N_(config.heads),
        K_(config.channels / config.heads),
        joined_(Device::joins_layers && !capacity.sequence && !capacity.positions),
        pool_(layout.weight(name, {N_, K_}, Init::zero, Kind::undecayed)),
        logit_bnc_(layout.template activation<Accum<T>>(capacity.B * capacity.C * N_)),
        pooling_(
            layout,
            {.B = capacity.B, .C = capacity.C, .N = N_, .K = K_, .window = options.window, .causal = options.causal},
            config.has_alibi(), alibi_slopes(layout, config), capacity) {}

  // Averages of the last pass or decode step.
  const T* out_bch() const { return pooling_.out_bch(); }

  // Reports logits, weights and averages under the names of the chapter.
  void inspect(Device& device, const Inspector& inspector, const std::string& logit, const std::string& weight,
               const std::string& average, const PassContext& pass) const {
    report(device, inspector, logit, logit_bnc_, {pass.B, N_, pass.C}, pass.C);
    pooling_.inspect_weights(device, inspector, weight, logit_bnc_, pass);
    report(device, inspector, average, out_bch(), {pass.B, pass.C, N_ * K_}, N_ * K_);
  }

  // logit_bnc = x . pool_nk / sqrt(K); fused: computed by forward
  void logits(Device& device, const Payload<const T>& x, const PassContext& pass) const {
    if (joined_) return;
    pooling_logits_forward<Device, T>(device, {.logit_bnc = logit_bnc_, .in = inputs(x, pass)});
  }

  // out_bch = pool(logit, x)
  void forward(Device& device, const Payload<const T>& x, const PassContext& pass) const {
    if constexpr (Device::joins_layers) {
      if (joined_) return pooling_.forward_with_logits(device, logit_bnc_, pool_.value, x, pass);
    }
    pooling_.forward(device, logit_bnc_, x, pass);
  }

  // The same, then a gate of out_bch.
  void forward_gated(Device& device, const Payload<const T>& x, const GateForward<T>& gate,
                     const PassContext& pass) const {
    if constexpr (Device::joins_layers) {
      if (joined_) {
        return pooling_.forward_with_logits_and_gate(device, logit_bnc_, pool_.value, x, gate, pass);
      }
    }
    forward(device, x, pass);
    gate_forward<Device, T>(device, gate);
  }

  // d_x, d_logit_bnc = pooling_backward(d_out); d_x is added to if `accumulate` is true, else overwritten.
  void backward(Device& device, const Payload<T>& d_x, bool accumulate, Accum<T>* d_logit_bnc, const T* d_out_bch,
                const Payload<const T>& x, const PassContext& pass) const {
    if constexpr (Device::joins_layers) {
      if (joined_) {
        return pooling_.backward_with_logits(device, d_x, accumulate, pool_.gradient, d_logit_bnc, d_out_bch,
                                             logit_bnc_, pool_.value, x, pass);
      }
    }
    pooling_.backward(device, d_x, accumulate, d_logit_bnc, d_out_bch, nullptr, logit_bnc_, x, pass);
  }

  // d_x += d_logit_bnc pool_nk / sqrt(K), d_pool_nk += sum_bc d_logit_bnc x / sqrt(K); fused: computed by backward
  void logits_backward(Device& device, const Payload<T>& d_x, const Accum<T>* d_logit_bnc, const Payload<const T>& x,
                       const PassContext& pass) const {
    if (joined_) return;
    pooling_logits_backward<Device, T>(device, {.d_x_bch = d_x.x_bch,
                                                .d_x_stride = d_x.stride,
                                                .d_pool_nk = pool_.gradient,
                                                .d_logit_bnc = d_logit_bnc,
                                                .in = inputs(x, pass)});
  }

  void reset(Device& device) const { pooling_.reset(device); }
  void continue_after_prefill(Device& device, Index positions) const {
    pooling_.continue_after_prefill(device, positions);
  }

  // Decodes one position, with the logits that logits() computed for x_h.
  void decode(Device& device, const T* x_h) const { pooling_.decode(device, logit_bnc_, x_h); }

 private:
  PoolingLogitsInputs<T> inputs(const Payload<const T>& x, const PassContext& pass) const {
    return {.x_bch = x.x_bch, .x_stride = x.stride, .pool_nk = pool_.value, .B = pass.B, .C = pass.C, .N = N_, .K = K_};
  }

  Index N_, K_;
  bool joined_;
  Weight<T> pool_;
  Accum<T>* logit_bnc_;
  Pooling<Device, T> pooling_;
};

}  // namespace abh
