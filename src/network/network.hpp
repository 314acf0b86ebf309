#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "network/arenas.hpp"
#include "network/batch.hpp"
#include "network/capacity.hpp"
#include "network/heads.hpp"
#include "network/input_layer.hpp"
#include "network/loss.hpp"
#include "network/mixers.hpp"
#include "network/optimizer.hpp"
#include "network/stack.hpp"
#include "network/weights.hpp"
#include "settings/config.hpp"

namespace abh {

// Passes over sequences in chunks; a part of a feature (network/mixers.hpp).
template <class Network, class Seen>
void compute_losses_in_chunks(Network&, const typename Network::Given&, double label_smoothing, const PassContext&,
                              const Seen&);
template <class Network, class Seen>
void differentiate_in_chunks(Network&, const typename Network::Given&, double label_smoothing, const PassContext&,
                             const Seen&);

// Computes the losses of a pass, without gradients. Calls seen(sequence, chunk, pass, loss) once, or for every chunk of
// every sequence.
template <class Network, class Seen>
void compute_losses(Network& network, const typename Network::Given& batch, double label_smoothing,
                    const PassContext& pass, const Seen& seen) {
  if constexpr (has_extras) {
    if (network.capacity().chunk) return compute_losses_in_chunks(network, batch, label_smoothing, pass, seen);
  }
  network.forward(batch, pass);
  seen(0, 0, pass, network.loss(batch, label_smoothing, pass, true));
}

// Computes the gradient of a pass: forward, loss and backward. Calls seen before the logits are overwritten.
template <class Network, class Seen>
void differentiate(Network& network, const typename Network::Given& batch, double label_smoothing,
                   const PassContext& pass, const Seen& seen) {
  if constexpr (has_extras) {
    if (network.capacity().chunk) return differentiate_in_chunks(network, batch, label_smoothing, pass, seen);
  }
  network.forward(batch, pass);
  seen(0, 0, pass, network.loss(batch, label_smoothing, pass));
  network.backward(batch, label_smoothing, pass);
}

// Network from token ids, or patches, to logits and loss:
//
//   memory = encoder(source)    where there is a source        (encoder.hpp)
//   x_bcd  = input(tokens)      embeddings                     (input_layer.hpp)
//   x_bcd  = stack(x_bcd)       blocks, one after the other    (stack.hpp, reversible.hpp)
//   logits = head(x_bcd)        of the next token, or of a classifier (heads.hpp)
//   loss   = cross entropy      with the targets               (loss.hpp)
//
// One template for all devices and data types. Blocks define the order of computation, layers the arithmetic.
template <class Device, class T>
class Network {
 public:
  using Given = DeviceBatch<T>;

  Network(Device& device, const ModelConfig& config, const NetworkCapacity& capacity, double dropout = 0,
          Processes& processes = one_process())
      : device_(device),
        channels_(config.channels),
        capacity_(capacity),
        measured_(measure(config, capacity)),
        weights_(device, measured_, capacity, processes),
        optimizer_(device, weights_, measured_, capacity),
        arenas_(device, measured_, capacity),
        layout_(arenas_.layout(measured_, weights_)),
        parts_(layout_, config, capacity, dropout) {
    layout_.write_constants(device_);
    if constexpr (can_count) {
      if (capacity.training && !device_.is_dry_run()) {
        auto counter = device_.dry_run_device();
        count_step(counter, config, capacity);
        device_.expect_scratch_of(counter);
      }
    }
  }

  // True if the device can make a dry run of a step.
  static constexpr bool can_count = requires(const Device& device) { device.dry_run_device(); };

  const NetworkCapacity& capacity() const { return capacity_; }
  std::vector<Parameter> parameters() const { return measured_.parameters(); }
  Weights<Device, T>& weights() { return weights_; }
  const Weights<Device, T>& weights() const { return weights_; }
  Optimizer<Device, T>& optimizer() { return optimizer_; }
  Arenas<Device, T>& arenas() { return arenas_; }
  const T* logits_bcv() const { return parts_.loss.logits_rv(); }  // for a classifier (B, O)

  // Table of weights of a network that is not constructed.
  static std::vector<Parameter> parameter_table(const ModelConfig& config) {
    return measure(config, NetworkCapacity{}).parameters();
  }

  // Memory of a network that is not constructed, on a device like this. Error if the total cannot be counted.
  static NetworkMemory memory(const Device& device, const ModelConfig& config, const NetworkCapacity& capacity) {
    const Layout<T> layout = measure(config, capacity);
    NetworkMemory memory;
    Weights<Device, T>::count_memory(memory, layout.weight_count(), capacity);
    Optimizer<Device, T>::count_memory(memory, layout.weight_count(), capacity);
    Arenas<Device, T>::count_memory(memory, layout, capacity);
    if constexpr (can_count) {
      if (capacity.training) {
        auto counter = device.dry_run_device();
        count_step(counter, config, capacity);
        memory.workspace_bytes = counter.scratch_peak();
      }
    }
    return memory;
  }

  // Computes the logits of pass.B sequences of pass.C tokens, and saves the activations for backward.
  void forward(const Given& batch, const PassContext& pass) {
    run_blocks(batch, pass);
    parts_.head->forward(device_, parts_.loss.logits_rv(), parts_.stack->out_bcd(), pass);
  }
  // The same without logits.
  void run_blocks(const Given& batch, const PassContext& pass) {
    if (parts_.encoder) parts_.encoder->forward(device_, batch, pass);
    parts_.input.forward(device_, parts_.stack->in_bcd(), batch, pass);
    parts_.stack->forward(device_, pass);
  }

  // Logits of the last forward, in device memory, their numbers of rows and columns, and the distance between rows.
  const T* logits_rv() const { return parts_.loss.logits_rv(); }
  Index logit_rows(const PassContext& pass) const { return parts_.head->rows(pass); }
  Index logit_columns() const { return parts_.head->columns(); }
  Index logit_stride() const { return parts_.head->stride(); }

  // Reports the arrays that forward has computed, in a pass without chunks: "x_bcd", "blocks.0.mixer.query_bch", ...
  void inspect(const Inspector& inspector, const PassContext& pass) const {
    if (parts_.encoder) parts_.encoder->inspect(device_, inspector, pass);
    parts_.stack->inspect(device_, inspector, pass);
  }

  // Computes the loss after forward. finds_best: also the most likely index of each row.
  auto loss(const Given& batch, double label_smoothing, const PassContext& pass, bool finds_best = false) {
    return parts_.loss.forward(device_, batch.target_r, label_smoothing, parts_.head->rows(pass), finds_best);
  }

  // Adds the gradient of the mean loss of the whole batch to the weight gradients; after loss. Overwrites the logits.
  // In the last pass, reports finished gradients to the weights.
  void backward(const Given& batch, double label_smoothing, const PassContext& pass) {
    const Index front = weights_.front_count();
    T* d_logits = parts_.loss.logits_rv();
    typename Device::DeferredReductions deferred(device_);
    parts_.loss.backward(device_, batch.target_r, label_smoothing, parts_.head->rows(pass), pass.count);
    typename Device::Scope scratch(device_.workspace);
    T* d_x_bcd = scratch.template take<T>(pass.BC() * channels_);
    parts_.head->backward(device_, d_x_bcd, d_logits, parts_.stack->out_bcd(), pass);
    if (parts_.encoder) {
      parts_.encoder->collect(device_, scratch.template take<T>(pass.B * pass.S * channels_), pass);
    }
    Index rest = parts_.stack->backward(device_, d_x_bcd, pass, weights_, front);
    parts_.input.backward(device_, d_x_bcd, batch, pass);
    if (parts_.encoder) rest = parts_.encoder->backward(device_, batch, pass, weights_, rest);
    deferred.finish();
    if (!pass.last) return;
    weights_.gradients_ready(0, rest);
    weights_.gradients_ready(front, weights_.count());
  }

  // Decoding of one sequence: reset the state, encode its source if there is one, then decode token by token. given,
  // pass: the source with pass.S positions. Returns the logits of the next token, (V), in device memory. `token` is in
  // device memory. position < capacity.positions for mixers with a cache and for learned positions.
  void reset(const Given& given = {}, const PassContext& pass = one_position) {
    arenas_.work_on(0);
    if (parts_.encoder) parts_.encoder->forward(device_, given, pass);
    parts_.stack->reset(device_);
  }
  const T* decode(const Token* token, Index position) {
    parts_.input.forward(device_, parts_.stack->in_bcd(), {token}, step_at(position));
    parts_.stack->decode(device_, position);
    return logits_of(parts_.stack->out_bcd());
  }
  // Alternative to reset: continues after the first positions of a sequence, whose chunks run_blocks has computed in
  // order. Returns the logits of the next token, as decode does.
  const T* continue_after_prefill(const PassContext& last_chunk) {
    parts_.stack->continue_after_prefill(device_, last_chunk.first_c + last_chunk.C);
    return logits_of(parts_.stack->out_bcd() + (last_chunk.C - 1) * channels_);
  }

 private:
  const T* logits_of(const T* x_d) {
    parts_.head->forward(device_, parts_.loss.logits_rv(), x_d, one_position);
    return parts_.loss.logits_rv();
  }

  // Parts of the network. They are constructed first without memory, to measure, then on the arenas. Their order is the
  // order of the weights in the arena, and of the initial values.
  struct Parts {
    Parts(Layout<T>& layout, const ModelConfig& config, const NetworkCapacity& capacity, double dropout)
        : shared(shared_table(layout, config)),
          encoder(make_encoder(layout, config, capacity.of_blocks(), dropout)),
          input(layout, input_shape(config), config, capacity.of_blocks(), dropout),
          stack(make_stack<Device, T>(layout, stack_shape(config), config, capacity.of_blocks(), dropout)),
          head(make_head<Device, T>(layout, config, capacity.of_blocks(), input.token())),
          loss(layout, *head, capacity.of_blocks()) {}

    // Table of tokens that encoder and decoder share, if there is one.
    static std::optional<Weight<T>> shared_table(Layout<T>& layout, const ModelConfig& config) {
      if (!config.has_encoder() || config.embeddings != "shared") return std::nullopt;
      return layout.weight("embedding.token_vd", {config.vocabulary, config.channels}, Init::normal, Kind::decayed);
    }
    std::unique_ptr<Encoder<Device, T>> make_encoder(Layout<T>& layout, const ModelConfig& config,
                                                     const BlockCapacity& capacity, double dropout) const {
      if (!config.has_encoder()) return nullptr;
      return std::make_unique<Encoder<Device, T>>(layout,
                                                  InputLayerShape<T>{.prefix = "encoder.embedding.",
                                                                     .position = "position_sd",
                                                                     .vocabulary = config.source_vocabulary,
                                                                     .context = config.source_context,
                                                                     .table = shared ? &*shared : nullptr,
                                                                     .dropout_site = sites::source_dropout},
                                                  config, capacity, dropout);
    }
    InputLayerShape<T> input_shape(const ModelConfig& config) const {
      return {.prefix = config.own_prefix() + "embedding.",
              .vocabulary = config.vocabulary,
              .context = config.context,
              .table = shared ? &*shared : nullptr};
    }
    StackShape<T> stack_shape(const ModelConfig& config) const {
      return {.prefix = config.own_prefix(),
              .first_layer = config.encoder_layers,
              .layers = config.own_layers(),
              .source = encoder ? &encoder->source() : nullptr};
    }

    std::optional<Weight<T>> shared;
    std::unique_ptr<Encoder<Device, T>> encoder;
    InputLayer<Device, T> input;
    std::unique_ptr<Stack<Device, T>> stack;
    std::unique_ptr<Head<Device, T>> head;
    Loss<Device, T> loss;
  };

  static Layout<T> measure(const ModelConfig& config, const NetworkCapacity& capacity) {
    if constexpr (!has_extras) {
      require_features(config.metadata(), ModelConfig().metadata(), "network");
      const Index chunk = capacity.positions > 0 ? 0 : capacity.chunk;  // prompts are read token by token
      require_features({{"chunk", std::to_string(chunk)}}, {}, "network");
    }
    const auto require_rows = [&](const char* what, Index tokens, Index rows) {
      if (!config.has_position_table() || tokens <= rows) return;
      throw Error(std::string("a ") + what + " of " + std::to_string(tokens) +
                  " tokens is longer than the position table, " + std::to_string(rows));
    };
    require_rows("sequence", capacity.longest(), config.context);
    require_rows("source", capacity.S, config.source_context);
    Layout<T> layout(capacity.recompute);
    Parts(layout, config, capacity, 0);
    return layout;
  }

  // Dry run of a training step on the largest batch, to measure its scratch memory.
  static void count_step(Device& counter, const ModelConfig& config,
                         const NetworkCapacity& capacity) requires can_count {
    Network network(counter, config, capacity);
    const DeviceMemory memory_bc(counter.memory(), bytes_of<Token>(capacity.B * capacity.C));
    const DeviceMemory memory_bpi(counter.memory(),
                                  bytes_of<T>(capacity.B * config.patches(capacity.C) * config.patch_inputs));
    const DeviceMemory memory_bs(counter.memory(), bytes_of<Token>(capacity.B * capacity.S));
    const Token* tokens_bc = memory_bc.as<Token>();
    StepState state;
    TrainingConfig training;
    training.optimizer = capacity.muon ? "muon" : "adamw";
    differentiate(network, {tokens_bc, tokens_bc, memory_bpi.as<T>(), memory_bs.as<Token>()}, 0,
                  {.B = capacity.B, .C = capacity.C, .state = &state, .S = capacity.S},
                  [](Index, Index, const PassContext&, const auto&) {});
    network.optimizer().measure_gradient(training, &state);
    network.optimizer().update(training, &state);
  }

  Device& device_;
  Index channels_;
  NetworkCapacity capacity_;
  Layout<T> measured_;
  Weights<Device, T> weights_;
  Optimizer<Device, T> optimizer_;
  Arenas<Device, T> arenas_;
  Layout<T> layout_;
  Parts parts_;
};

}  // namespace abh
