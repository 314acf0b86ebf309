#pragma once

#include <string>
#include <type_traits>
#include <vector>

#include "blocks/block.hpp"
#include "layers/parts/pooling_with_logits.hpp"
#include "layers/pooling.hpp"
#include "plain/plain.hpp"

namespace abh {

// Rows that a pooling averages, or their gradients. stride: distance between consecutive rows; 0: contiguous rows.
template <class Element>
struct Payload {
  Element* x_bch;
  Index stride = 0;
};

// Inputs of a pooling; for a chunk of a sequence also the rounding errors of the first and the last position.
template <class T>
struct PoolingInput {
  PoolingInputs<T> in;
  PoolingLowPart<const Accum<T>> first{};
  PoolingLowPart<Accum<T>> last{};
};
// Arrays of the backward pass of a pooling.
template <class T>
struct PoolingGradients {
  Payload<T> d_x;
  bool accumulate;
  Accum<T>* d_logit_bnc;
  const T* d_out_bch;
  const Accum<T>* d_lse_bnc;
};

// State of a pooling before a chunk of a sequence; a part of a feature (network/mixers.hpp).
template <class Device, class T>
class PoolingPast;

// Pooling with the arrays saved for backward and the inference state. The caller computes the logits.
template <class Device, class T>
class Pooling {
 public:
  // shape: with the largest B and C; each pass has its own. slope_n: null without decay, and while a layout is
  // measured; therefore `decays` is an argument.
  Pooling(Layout<T>& layout, const PoolingShape& shape, bool decays, const Accum<T>* slope_n,
          const BlockCapacity& capacity)
      : shape_(shape_in(shape, capacity)),
        decays_(decays),
        slope_n_(slope_n),
        past_(layout, shape_, capacity),
        max_bnc_(layout.template activation<Accum<T>>((capacity.B * capacity.C + past_.most()) * shape.N)),
        sum_bnc_(layout.template activation<Accum<T>>((capacity.B * capacity.C + past_.most()) * shape.N)),
        out_bch_(layout.template activation<T>((capacity.B * capacity.C + past_.most()) * shape.H())) {
    if (past_.most() > 0) {
      chunk_max_nc_ = layout.template activation<Accum<T>>(capacity.C * shape.N);
      chunk_sum_nc_ = layout.template activation<Accum<T>>(capacity.C * shape.N);
    }
    if (capacity.positions) state_ = layout.template state<Accum<T>>(pooling_state_size(shape, decays));
  }

  // Averages of the last pass or decode step. The total weight of an average is sum e^max.
  T* out_bch() const { return out_bch_ + past_.most() * shape_.H(); }
  Accum<T>* max_bnc() const { return past_.most() > 0 ? chunk_max_nc_ : max_bnc_; }
  Accum<T>* sum_bnc() const { return past_.most() > 0 ? chunk_sum_nc_ : sum_bnc_; }

  // Reports the weight of every position in every average, in a pass without chunks. Computed on the host with the
  // plain loops.
  void inspect_weights(Device& device, const Inspector& inspector, const std::string& name, const Accum<T>* logit_bnc,
                       const PassContext& pass) const {
    using A = Accum<T>;
    if constexpr (std::is_constructible_v<double, A>) {
      const Index B = pass.B, C = pass.C, N = shape_.N;
      const std::vector<A> logit = on_host<A>(device, logit_bnc, B * N, C);
      const std::vector<A> slope = on_host<A>(device, slope_n_, 1, N);
      const std::vector<Token> mask = on_host<Token>(device, pass.mask_bc, B, C);
      std::vector<A> weight(static_cast<std::size_t>(B * N * C * C));
      PlainDevice plain;
      pooling_weights<PlainDevice, A>(plain, weight.data(),
                                      {.logit_bnc = logit.data(),
                                       .x_bch = nullptr,
                                       .slope_n = slope_n_ ? slope.data() : nullptr,
                                       .mask_bc = pass.mask_bc ? mask.data() : nullptr,
                                       .shape = shape(B, C)});
      inspector(name, {B, N, C, C}, std::vector<double>(weight.begin(), weight.end()));
    }
  }

  // out_bch = pool(logit, x)
  void forward(Device& device, const Accum<T>* logit_bnc, const Payload<const T>& x, const PassContext& pass) const {
    typename Device::Scope scratch(device.workspace);
    const auto all = past_.join(device, scratch, inputs(logit_bnc, x, pass), pass);
    pooling_forward<Device, T>(device, arrays(all, pass));
    past_.leave(device, all, max_bnc_, sum_bnc_, all_out(pass), pass);
    past_.split(device, chunk_max_nc_, max_bnc_, pass);
    past_.split(device, chunk_sum_nc_, sum_bnc_, pass);
  }

  // Fused logit_bnc = x . pool_nk / sqrt(K) and forward. Only with joins_layers, in a pass without chunks.
  void forward_with_logits(Device& device, Accum<T>* logit_bnc, const T* pool_nk, const Payload<const T>& x,
                           const PassContext& pass) const {
    pooling_with_logits_forward<Device, T>(
        device, {.logit_bnc = logit_bnc, .pool_nk = pool_nk, .pooling = arrays({inputs(logit_bnc, x, pass)}, pass)});
  }

  // The same, and the gate of the averages.
  void forward_with_logits_and_gate(Device& device, Accum<T>* logit_bnc, const T* pool_nk, const Payload<const T>& x,
                                    const GateForward<T>& gate, const PassContext& pass) const {
    gated_pooling_forward<Device, T>(
        device,
        {.pooled = {.logit_bnc = logit_bnc, .pool_nk = pool_nk, .pooling = arrays({inputs(logit_bnc, x, pass)}, pass)},
         .gate = gate});
  }

  // d_x, d_logit_bnc = pooling_backward(d_out, d_lse_bnc); d_x is added to if `accumulate` is true, else overwritten.
  // d_lse_bnc: gradient of max + log sum; null: 0.
  void backward(Device& device, const Payload<T>& d_x, bool accumulate, Accum<T>* d_logit_bnc, const T* d_out_bch,
                const Accum<T>* d_lse_bnc, const Accum<T>* logit_bnc, const Payload<const T>& x,
                const PassContext& pass) const {
    typename Device::Scope scratch(device.workspace);
    const auto all = past_.join(device, scratch, inputs(logit_bnc, x, pass), pass);
    const Gradients d_chunk{d_x, accumulate, d_logit_bnc, d_out_bch, d_lse_bnc};
    const auto d = past_.join(device, scratch, d_chunk, pass);
    pooling_backward<Device, T>(device, arrays(d, all, pass));
    past_.split(device, d_chunk, d, pass);
  }

  // Backward of forward_with_logits, without d_lse_bnc: also adds the gradients of the logits to d_x and d_pool_nk.
  void backward_with_logits(Device& device, const Payload<T>& d_x, bool accumulate, Accum<T>* d_pool_nk,
                            Accum<T>* d_logit_bnc, const T* d_out_bch, const Accum<T>* logit_bnc, const T* pool_nk,
                            const Payload<const T>& x, const PassContext& pass) const {
    pooling_with_logits_backward<Device, T>(
        device,
        {.d_pool_nk = d_pool_nk,
         .pool_nk = pool_nk,
         .pooling = arrays({d_x, accumulate, d_logit_bnc, d_out_bch, nullptr}, {inputs(logit_bnc, x, pass)}, pass)});
  }

  void reset(Device& device) const { pooling_start<Device, T>(device, state_, shape(1, 1), decays_); }

  void continue_after_prefill(Device& device, Index positions) const {
    reset(device);
    past_.put_in_state(device, state_, shape(1, 1), decays_, positions,
                       [&](const Accum<T>* logit_n, const T* x_h) { decode(device, logit_n, x_h); });
  }

  // Decodes one position.
  void decode(Device& device, const Accum<T>* logit_n, const T* x_h) const {
    pooling_step<Device, T>(device, {.out_h = out_bch(),
                                     .max_n = max_bnc(),
                                     .sum_n = sum_bnc(),
                                     .state = state_,
                                     .logit_n = logit_n,
                                     .x_h = x_h,
                                     .slope_n = slope_n_,
                                     .shape = shape(1, 1)});
  }

 private:
  PoolingInputs<T> inputs(const Accum<T>* logit_bnc, const Payload<const T>& x, const PassContext& pass) const {
    return {.logit_bnc = logit_bnc,
            .x_bch = x.x_bch,
            .x_stride = x.stride,
            .slope_n = slope_n_,
            .mask_bc = pass.mask_bc,
            .shape = shape(pass.B, pass.C)};
  }
  using Input = PoolingInput<T>;
  using Gradients = PoolingGradients<T>;
  PoolingForward<T> arrays(const Input& all, const PassContext& pass) const {
    return {.out_bch = all_out(pass),
            .max_bnc = max_bnc_,
            .sum_bnc = sum_bnc_,
            .in = all.in,
            .first = all.first,
            .last = all.last};
  }
  PoolingBackward<T> arrays(const Gradients& d, const Input& all, const PassContext& pass) const {
    return {.d_x_bch = d.d_x.x_bch,
            .d_x_stride = d.d_x.stride,
            .accumulate = d.accumulate,
            .d_logit_bnc = d.d_logit_bnc,
            .d_out_bch = d.d_out_bch,
            .d_lse_bnc = d.d_lse_bnc,
            .out_bch = all_out(pass),
            .max_bnc = max_bnc_,
            .sum_bnc = sum_bnc_,
            .in = all.in};
  }
  PoolingShape shape(Index B, Index C) const {
    PoolingShape shape = shape_;
    shape.B = B;
    shape.C = C;
    return shape;
  }
  // A window of at least the length of the sequence is no window.
  static PoolingShape shape_in(PoolingShape shape, const BlockCapacity& capacity) {
    if (capacity.sequence && !capacity.positions && shape.window >= capacity.sequence) shape.window = 0;
    return shape;
  }
  // Averages of a pass, including the state before the chunk.
  T* all_out(const PassContext& pass) const { return out_bch_ + (past_.most() - past_.positions(pass)) * shape_.H(); }

  PoolingShape shape_;
  bool decays_;
  const Accum<T>* slope_n_;
  PoolingPast<Device, T> past_;
  Accum<T>* max_bnc_;
  Accum<T>* sum_bnc_;
  T* out_bch_;
  // Maxima and sums of the chunk only.
  Accum<T>* chunk_max_nc_ = nullptr;
  Accum<T>* chunk_sum_nc_ = nullptr;
  PerHypothesis<Accum<T>> state_;
};

}  // namespace abh
