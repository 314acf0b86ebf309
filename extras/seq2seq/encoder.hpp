#pragma once

#include <memory>
#include <string>

#include "blocks/parts/attention_core.hpp"
#include "blocks/parts/norm.hpp"
#include "network/input_layer.hpp"
#include "network/stack.hpp"

namespace abh {

// Encoder: reads the source, a second sequence, once, without a causal mask (extras/seq2seq/README.md). Its output is
// the memory, to which every layer of the decoder attends:
//
//   x_bsd = input(source tokens),  x_bsd = stack(x_bsd),  memory_bsd = norm(x_bsd)
//
// The norm is optional. The gradient of the memory is the sum of the gradients from all decoder layers.
template <class Device, class T>
class Encoder {
 public:
  // capacity: of passes of the network. input: shape of the source.
  Encoder(Layout<T>& layout, const InputLayerShape<T>& input, const ModelConfig& config, const BlockCapacity& capacity,
          double dropout)
      : input_(layout, input, config, of_source(capacity), dropout),
        stack_(make_stack<Device, T>(layout, {.prefix = "encoder.", .layers = config.encoder_layers}, config,
                                     of_source(capacity), dropout)),
        D_(config.channels),
        has_norm_(config.has_final_norm()),
        norm_(layout, "encoder.final_norm.", has_norm_, D_, of_source(capacity), false),
        normed_bsd_(has_norm_ ? layout.template activation<T>(capacity.B * capacity.S * D_) : nullptr) {}

  // Memory of the last pass, without gradients so far.
  const Source<T>& source() const { return source_; }

  // pass: that of the network.
  void forward(Device& device, const DeviceBatch<T>& batch, const PassContext& pass) {
    const PassContext of_source = source_pass(pass);
    input_.forward(device, stack_->in_bcd(), source_batch(batch), of_source);
    stack_->forward(device, of_source);
    source_ = {.memory_bse = norm_.forward(device, normed_bsd_, stack_->out_bcd(), of_source.BC()),
               .S = pass.S,
               .mask_bs = pass.source_mask_bs};
  }

  // d_memory_bsd: array where decoder layers accumulate the memory's gradient, before backward.
  void collect(Device& device, T* d_memory_bsd, const PassContext& pass) {
    source_.d_memory_bse = d_memory_bsd;
    device.set_zero(d_memory_bsd, source_pass(pass).BC() * D_);
  }
  // Overwrites the accumulated gradient. Otherwise as Stack::backward.
  Index backward(Device& device, const DeviceBatch<T>& batch, const PassContext& pass, Weights<Device, T>& weights,
                 Index end) {
    const PassContext of_source = source_pass(pass);
    T* d_x_bsd = source_.d_memory_bse;
    if (has_norm_) norm_.backward(device, d_x_bsd, d_x_bsd, nullptr, stack_->out_bcd(), of_source.BC());
    const Index rest = stack_->backward(device, d_x_bsd, of_source, weights, end);
    input_.backward(device, d_x_bsd, source_batch(batch), of_source);
    return rest;
  }

  void inspect(Device& device, const Inspector& inspector, const PassContext& pass) const {
    stack_->inspect(device, inspector, source_pass(pass));
    report(device, inspector, "encoder.memory_bse", source_.memory_bse, {pass.B, pass.S, D_}, D_);
  }

 private:
  static BlockCapacity of_source(const BlockCapacity& capacity) {
    return {.B = capacity.B, .C = capacity.S, .positions = 0};
  }
  static PassContext source_pass(const PassContext& pass) {
    return {.B = pass.B,
            .C = pass.S,
            .mask_bc = pass.source_mask_bs,
            .state = pass.state,
            .first_b = pass.first_b,
            .last = pass.last};
  }
  static DeviceBatch<T> source_batch(const DeviceBatch<T>& batch) { return {.token_bc = batch.source_bs}; }

  InputLayer<Device, T> input_;
  std::unique_ptr<Stack<Device, T>> stack_;
  Index D_;
  bool has_norm_;
  Norm<Device, T> norm_;
  T* normed_bsd_;  // the memory; without a norm it is the output of the stack
  Source<T> source_;
};

}  // namespace abh
