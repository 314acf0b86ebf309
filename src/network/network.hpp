#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "blocks/conv.hpp"
#include "blocks/ffn.hpp"
#include "blocks/layout.hpp"
#include "blocks/norm.hpp"
#include "blocks/residual.hpp"
#include "blocks/sinusoids.hpp"
#include "device/memory.hpp"
#include "layers/adamw.hpp"
#include "layers/causal_conv.hpp"
#include "layers/cross_entropy.hpp"
#include "layers/embedding.hpp"
#include "layers/global_norm.hpp"
#include "layers/linear.hpp"
#include "layers/muon.hpp"
#include "layers/weight_average.hpp"
#include "network/chunks.hpp"
#include "network/heads.hpp"
#include "network/mixers.hpp"
#include "settings/config.hpp"

namespace abh {

// From token ids to logits and back:
//
//   x_bcd      = dropout(norm(token_vd[t] + position_cd))      the norm is optional, and positions may be elsewhere
//   x_bcd      = conv(x), mixer(x), ffn(x)                     for each layer; the convolution is optional
//   logits     = head(x)                                    of the next token, or of a classifier (heads.hpp)
//
// One template for every device and number type; the blocks hold the order of computation, the layers the arithmetic.
template <class Device, class T>
class Network {
 public:
  Network(Device& device, const ModelConfig& config, const NetworkExtent& extent, double dropout = 0)
      : device_(device),
        config_(config),
        extent_(extent),
        dropout_(dropout),
        measured_(measure(config, extent)),
        weights_(device.memory(), bytes_of<T>(measured_.weight_count())),
        masters_(device.memory(), extent.training && narrow ? bytes_of<Accum<T>>(measured_.weight_count()) : 0),
        gradients_(device.memory(), extent.training ? bytes_of<Accum<T>>(measured_.weight_count()) : 0),
        partial_sums_(device.memory(), extent.training ? partial_sum_bytes(measured_, extent) : 0),
        first_moments_(device.memory(), extent.training ? bytes_of<Accum<T>>(measured_.weight_count()) : 0),
        second_moments_(device.memory(), extent.training ? bytes_of<Accum<T>>(measured_.weight_count()) : 0),
        averages_(device.memory(), extent.average ? bytes_of<Accum<T>>(measured_.weight_count()) : 0),
        activations_(device.memory(), measured_.activation_bytes()),
        states_(device.memory(), measured_.state_bytes()),
        carried_(device.memory(), measured_.carried_bytes()),
        adjoints_(device.memory(), extent.training ? measured_.adjoint_bytes() : 0),
        borders_(device.memory(), static_cast<std::size_t>(extent.kept_borders()) * measured_.carried_bytes()),
        linear_maps_(linear_maps(measured_)),
        layout_(measured_, weights(), extent.training ? gradients() : nullptr, activations_.as<std::byte>(),
                states_.as<std::byte>(), carried_.as<std::byte>(), adjoints_.as<std::byte>()),
        parts_(layout_, config, extent, dropout) {
    layout_.write_constants(device_);
    device_.set_zero(weights(), weight_count());
    if (extent.training) {
      if constexpr (can_count) {
        if (!device_.counts()) device_.workspace.expect(workspace_bytes(device_, config, extent));
      }
      device_.set_zero(gradients(), weight_count());
      device_.set_zero(first_moments(), weight_count());
      device_.set_zero(second_moments(), weight_count());
      if (extent.average) device_.set_zero(averages(), weight_count());
    }
  }

  // Where T is narrower than Accum<T> (bf16), training keeps the weights in full precision too: the optimizer updates
  // these, and what the layers read is their rounded copy.
  static constexpr bool narrow = !std::is_same_v<T, Accum<T>>;

  // Whether a step can be walked on such a device without computing it.
  static constexpr bool can_count = requires(const Device& device) { device.counter(); };

  const NetworkExtent& extent() const { return extent_; }
  std::vector<Parameter> parameters() const { return measured_.parameters(); }
  Index weight_count() const { return measured_.weight_count(); }
  T* weights() { return weights_.as<T>(); }
  Accum<T>* gradients() { return gradients_.as<Accum<T>>(); }
  Accum<T>* first_moments() { return first_moments_.as<Accum<T>>(); }
  Accum<T>* second_moments() { return second_moments_.as<Accum<T>>(); }
  Accum<T>* averages() { return averages_.as<Accum<T>>(); }
  const T* logits_bcv() const { return parts_.logits; }  // of a classifier (B, O)

  // All weights in the order of their arena, from and to the host.
  std::vector<Accum<T>> read_weights() {
    std::vector<Accum<T>> host(static_cast<std::size_t>(weight_count()));
    if constexpr (narrow) {
      if (masters()) {
        device_.copy_to_host(host.data(), masters(), weight_count());
      } else {
        std::vector<T> rounded(host.size());
        device_.copy_to_host(rounded.data(), weights(), weight_count());
        host.assign(rounded.begin(), rounded.end());
      }
    } else {
      device_.copy_to_host(host.data(), weights(), weight_count());
    }
    return host;
  }
  void write_weights(const std::vector<Accum<T>>& host) {
    std::vector<T> rounded;
    rounded.reserve(host.size());
    for (Accum<T> weight : host) rounded.push_back(T(weight));
    device_.copy_from_host(weights(), rounded.data(), weight_count());
    if (masters()) device_.copy_from_host(masters(), host.data(), weight_count());
  }

  // The table of weights of a network that is not built.
  static std::vector<Parameter> parameter_table(const ModelConfig& config) {
    return measure(config, NetworkExtent{}).parameters();
  }

  // Memory of a network that is not built, on a device like this one. Error if it cannot even be counted.
  static NetworkMemory memory(const Device& device, const ModelConfig& config, const NetworkExtent& extent) {
    const Layout<T> layout = measure(config, extent);
    NetworkMemory memory;
    memory.weights = layout.weight_count();
    memory.weight_bytes = bytes_of<T>(layout.weight_count());
    if (extent.training) {
      memory.gradient_bytes = bytes_of<Accum<T>>(layout.weight_count());
      memory.moment_bytes = (extent.average ? 3 : 2) * memory.gradient_bytes;
      memory.gradient_bytes += partial_sum_bytes(layout, extent);
      if (narrow) memory.weight_bytes += bytes_of<Accum<T>>(layout.weight_count());
      if constexpr (can_count) memory.workspace_bytes = workspace_bytes(device, config, extent);
    }
    memory.activation_bytes = layout.activation_bytes();
    memory.state_bytes = layout.state_bytes();
    memory.border_bytes = border_bytes(layout, extent);
    return memory;
  }

  // Fills the logits of pass.B sequences of pass.C tokens and saves what backward needs. Tokens are in device memory.
  void forward(const Token* tokens_bc, const Pass& pass) {
    run_blocks(tokens_bc, pass);
    parts_.head->forward(device_, parts_.logits, parts_.x_bcd.back(), pass);
  }

  // The same without logits.
  void run_blocks(const Token* tokens_bc, const Pass& pass) {
    embed(tokens_bc, pass);
    for (std::size_t i = 0; i < parts_.blocks.size(); ++i)
      parts_.blocks[i]->forward(device_, parts_.x_bcd[i + 1], parts_.x_bcd[i], pass);
  }

  // The mean loss over the targets that count, how many these are, and the loss of each, 0 where it does not count; in
  // device memory, after forward. Targets: one a position, (BC), for a classifier one a sequence, (B).
  struct Loss {
    const Accum<T>* mean;
    const Index* count;
    const Accum<T>* each_bc;
  };
  Loss loss(const Token* targets, double label_smoothing, const Pass& pass) {
    cross_entropy_forward<Device, T>(device_, {.loss = parts_.loss,
                                               .loss_bc = parts_.each_loss,
                                               .lse_bc = parts_.each_lse,
                                               .count = parts_.count,
                                               .logits_bcv = parts_.logits,
                                               .targets_bc = targets,
                                               .label_smoothing = label_smoothing,
                                               .BC = parts_.head->rows(pass),
                                               .V = parts_.head->columns()});
    return {parts_.loss, parts_.count, parts_.each_loss};
  }

  // Adds the gradient of the mean loss, that of the whole batch, to the weights' gradients; after loss. Overwrites the
  // logits. complete(begin, end) is told of the weights begin ... end - 1 of the arena as soon as nothing is added to
  // their gradients any more, from the last block to the first, so that more can be done with them beside the rest; in
  // pieces that are worth it, of all weights once.
  template <class Complete>
  void backward(const Token* tokens_bc, const Token* targets, double label_smoothing, const Pass& pass,
                const Complete& complete) {
    const Index BC = pass.BC(), D = config_.channels;
    T* d_logits = parts_.logits;
    cross_entropy_backward<Device, T>(device_, {.d_logits_bcv = d_logits,
                                                .logits_bcv = parts_.logits,
                                                .lse_bc = parts_.each_lse,
                                                .count = pass.count ? pass.count : parts_.count,
                                                .targets_bc = targets,
                                                .label_smoothing = label_smoothing,
                                                .BC = parts_.head->rows(pass),
                                                .V = parts_.head->columns()});
    typename Device::Scope scratch(device_.workspace);
    T* d_x_bcd = scratch.template take<T>(BC * D);
    parts_.head->backward(device_, d_x_bcd, d_logits, parts_.x_bcd.back(), pass);
    Index end = measured_.decayed_count();
    for (std::size_t i = parts_.blocks.size(); i-- > 0;) {
      parts_.blocks[i]->backward(device_, d_x_bcd, parts_.x_bcd[i], pass);
      if (end - parts_.block_begin[i] < smallest_piece) continue;
      complete(parts_.block_begin[i], end);
      end = parts_.block_begin[i];
    }
    dropout_backward<Device, T>(device_, d_x_bcd, d_x_bcd, embedding_dropout(pass), BC * D);
    if (config_.embedding_norm)
      parts_.embedding_norm.backward(device_, d_x_bcd, d_x_bcd, nullptr, parts_.embedded_bcd, BC);
    Accum<T>* d_position_cd = parts_.position.gradient;
    if (d_position_cd) d_position_cd += pass.first_c * D;
    embedding_backward<Device, T>(device_, parts_.token.gradient, d_position_cd, d_x_bcd, tokens_bc, pass.B, pass.C, D,
                                  config_.token_rows());
    complete(Index{0}, end);
    complete(measured_.decayed_count(), weight_count());
  }
  void backward(const Token* tokens_bc, const Token* targets, double label_smoothing, const Pass& pass) {
    backward(tokens_bc, targets, label_smoothing, pass, [](Index, Index) {});
  }
  static constexpr Index smallest_piece = 1 << 16;

  // What the blocks carry from the chunk of the last pass to the next, kept as border i, and the other way round.
  void keep_border(Index i) { device_.copy(border(i), carried_.as<std::byte>(), carried_size()); }
  void restore_border(Index i) { device_.copy(carried_.as<std::byte>(), border(i), carried_size()); }
  // Nothing follows the next chunk whose gradient could come back.
  void forget_adjoints() { device_.set_zero(adjoints_.as<std::byte>(), static_cast<Index>(measured_.adjoint_bytes())); }

  // The gradients of a step's shards, added up as a balanced binary tree: of weights begin ... end - 1, once backward
  // of a shard is done with them, shard by shard. After the last, gradients() holds the sum. A sum waits for that of as
  // many shards more, as the digits of a binary counter do: the sum of shards 4 and 5, say, for that of 6 and 7, and
  // that of 0 to 3 for both.
  void add_shard(Index shard, Index begin, Index end) {
    Accum<T>* const gradient = gradients() + begin;
    const Index count = end - begin;
    Index level = 0;
    for (; shard >> level & 1; ++level) {
      add<Device, Accum<T>>(device_, gradient, partial_sum(level) + begin, gradient, count);
    }
    if (shard + 1 == extent_.shards) return;
    device_.copy(partial_sum(level) + begin, gradient, count);
    device_.set_zero(gradient, count);
  }

  // The norm of the accumulated gradients and the scale that clips them, into `state`.
  void measure_gradient(const TrainingConfig& training, StepState* state) {
    global_norm<Device, T>(device_, state, gradients(), training.clip, weight_count());
  }

  // One optimizer step on the accumulated gradients, which are then zero again; after measure_gradient, whose norm must
  // be finite for the weights to change. The average of the weights, where there is one, follows them.
  void update(const TrainingConfig& training, StepState* state) {
    AdamwSettings settings{training.beta1, training.beta2, 1e-8, training.weight_decay};
    const auto update_range = [&](Index begin, Index count) {
      adamw_update<Device, T>(device_, {.weight = weights() + begin,
                                        .master = masters() ? masters() + begin : nullptr,
                                        .first_moment = first_moments() + begin,
                                        .second_moment = second_moments() + begin,
                                        .d_weight = gradients() + begin,
                                        .settings = settings,
                                        .state = state,
                                        .count = count});
    };
    const Index decayed = measured_.decayed_count();
    if (training.optimizer == "muon") {
      update_linear_maps(training, state);
      for (const Parameter& parameter : parameters()) {
        if (parameter.kind == Kind::decayed) update_range(parameter.offset, parameter.count);
      }
    } else {
      update_range(0, decayed);
    }
    settings.weight_decay = 0;
    update_range(decayed, weight_count() - decayed);
    if (extent_.average) {
      weight_average_update<Device, T>(device_, averages(), exact_weights(), state, weight_count());
    }
    device_.set_zero(gradients(), weight_count());
  }

  // Step-by-step inference for one sequence: forget everything, then one token after the other. Returns the logits of
  // the token that follows, (V), in device memory. `token` is in device memory; position < extent.positions for mixers
  // with a cache and for learned positions.
  void start() {
    for (const auto& block : parts_.blocks) block->start(device_);
  }
  const T* step(const Token* token, Index position) {
    embed(token, step_at(position));
    for (std::size_t i = 0; i < parts_.blocks.size(); ++i)
      parts_.blocks[i]->step(device_, parts_.x_bcd[i + 1], parts_.x_bcd[i], position);
    parts_.head->forward(device_, parts_.logits, parts_.x_bcd.back(), one_position);
    return parts_.logits;
  }
  // Or go on behind the first positions of a sequence, whose chunks run_blocks has computed one after the other.
  // Returns the logits of the token that follows the last of them, as step does.
  const T* go_on(const Pass& last_chunk) {
    for (const auto& block : parts_.blocks) block->go_on(device_, last_chunk.first_c + last_chunk.C);
    const T* x_d = parts_.x_bcd.back() + (last_chunk.C - 1) * config_.channels;
    parts_.head->forward(device_, parts_.logits, x_d, one_position);
    return parts_.logits;
  }

 private:
  Accum<T>* masters() { return masters_.as<Accum<T>>(); }
  // What the optimizer updates.
  const Accum<T>* exact_weights() {
    if constexpr (narrow) {
      return masters();
    } else {
      return weights();
    }
  }

  // What enters the first block.
  void embed(const Token* tokens_bc, const Pass& pass) {
    const Index D = config_.channels;
    const bool computed = parts_.sinusoids.present();
    embedding_forward<Device, T>(device_, parts_.embedded_bcd, tokens_bc, parts_.token.value,
                                 computed ? parts_.sinusoids.rows_cd(device_, pass) : parts_.position.value, pass.B,
                                 pass.C, D, computed ? 0 : pass.first_c);
    const T* normed_bcd = parts_.embedding_norm.forward(device_, parts_.x_bcd[0], parts_.embedded_bcd, pass.BC());
    dropout_forward<Device, T>(device_, parts_.x_bcd[0], normed_bcd, nullptr, embedding_dropout(pass), pass.BC() * D);
  }

  // The sum of 2^level shards.
  Accum<T>* partial_sum(Index level) {
    const std::size_t bytes = bytes_of<Accum<T>>(weight_count());
    return reinterpret_cast<Accum<T>*>(partial_sums_.as<std::byte>() + static_cast<std::size_t>(level) * bytes);
  }
  static std::size_t partial_sum_bytes(const Layout<T>& layout, const NetworkExtent& extent) {
    return static_cast<std::size_t>(extent.partial_sums()) * bytes_of<Accum<T>>(layout.weight_count());
  }

  template <class Element>
  static std::size_t bytes_of(Index count) {
    Extent extent;
    extent.claim(count, sizeof(Element));
    return extent.bytes();
  }

  // What the network is made of: first built without memory, to measure, then on the arenas.
  struct Parts {
    Parts(Layout<T>& layout, const ModelConfig& config, const NetworkExtent& extent, double dropout)
        : token(layout.weight("embedding.token_vd", {config.vocabulary, config.channels}, Init::normal, Kind::decayed)),
          cls(config.has_cls() ? layout.weight("embedding.cls_d", {config.channels}, Init::normal, Kind::decayed)
                               : Weight<T>{}),
          position(config.has_position_table()
                       ? layout.weight("embedding.position_cd", {config.context, config.channels}, Init::normal,
                                       Kind::undecayed)
                       : Weight<T>{}),
          sinusoids(layout, config, block_extent(extent)),
          embedding_norm(layout, "embedding.norm_", config.embedding_norm, config.channels, block_extent(extent)),
          blocks(make_blocks(layout, block_begin, config, extent, dropout)),
          head(make_head<Device, T>(layout, config, block_extent(extent), token)) {
      const BlockExtent block = block_extent(extent);
      const Index BC = block.B * block.C;
      for (std::size_t i = 0; i <= blocks.size(); ++i) {
        x_bcd.push_back(layout.template activation<T>(BC * config.channels));
      }
      embedded_bcd = config.embedding_norm ? layout.template activation<T>(BC * config.channels) : x_bcd[0];
      const Index rows = head->rows({block.B, block.C});
      logits = layout.template activation<T>(rows * head->columns());
      loss = layout.template activation<Accum<T>>(1);
      each_loss = layout.template activation<Accum<T>>(rows);
      each_lse = layout.template activation<Accum<T>>(rows);
      count = layout.template activation<Index>(1);
    }

    Weight<T> token, cls, position;  // cls lies behind the table of tokens and is its last row
    Sinusoids<Device, T> sinusoids;
    Norm<Device, T> embedding_norm;
    std::vector<Index> block_begin;  // of the weights of each block that decay, in the arena
    std::vector<std::unique_ptr<Block<Device, T>>> blocks;
    std::unique_ptr<Head<Device, T>> head;
    T* embedded_bcd;        // the stream itself where no norm follows
    std::vector<T*> x_bcd;  // the residual stream: x_bcd[i] enters block i, the last one leaves the last block
    T* logits;
    Accum<T>* loss;
    Accum<T>* each_loss;
    Accum<T>* each_lse;
    Index* count;
  };

  // In chunks there is one sequence at a time.
  static BlockExtent block_extent(const NetworkExtent& extent) {
    if (!extent.chunk) return {extent.B, extent.C, extent.positions};
    return {1, std::min(extent.chunk, extent.C), extent.positions, extent.longest()};
  }

  std::byte* border(Index i) { return borders_.as<std::byte>() + i * carried_size(); }
  Index carried_size() const { return static_cast<Index>(measured_.carried_bytes()); }
  static std::size_t border_bytes(const Layout<T>& layout, const NetworkExtent& extent) {
    const auto borders = static_cast<std::size_t>(1 + extent.kept_borders());
    return borders * layout.carried_bytes() + (extent.training ? layout.adjoint_bytes() : 0);
  }

  static std::vector<std::unique_ptr<Block<Device, T>>> make_blocks(Layout<T>& layout, std::vector<Index>& block_begin,
                                                                    const ModelConfig& config,
                                                                    const NetworkExtent& extent, double dropout) {
    const BlockExtent block = block_extent(extent);
    const std::vector<std::size_t> mixers = mixers_of(config);
    const std::vector<Index> windows = config.windows();
    std::vector<std::unique_ptr<Block<Device, T>>> blocks;
    for (std::size_t layer = 0; layer < mixers.size(); ++layer) {
      const std::string prefix = "blocks." + std::to_string(layer) + ".";
      const BlockOptions options{.causal = config.causal,
                                 .window = windows[layer],
                                 .dropout = dropout,
                                 .layer = static_cast<std::uint32_t>(layer)};
      if (config.conv_kernel) {
        block_begin.push_back(layout.decayed_count());
        blocks.push_back(std::make_unique<ConvBlock<Device, T>>(layout, prefix + "conv.", config, block, options));
      }
      block_begin.push_back(layout.decayed_count());
      blocks.push_back(Mixers::make<Device, T>(mixers[layer], layout, prefix + "mixer.", config, block, options));
      block_begin.push_back(layout.decayed_count());
      blocks.push_back(std::make_unique<FfnBlock<Device, T>>(layout, prefix + "ffn.", config, block, options));
    }
    return blocks;
  }

  static Layout<T> measure(const ModelConfig& config, const NetworkExtent& extent) {
    if (config.has_position_table() && extent.longest() > config.context) {
      throw Error("a sequence of " + std::to_string(extent.longest()) + " tokens is longer than the position table, " +
                  std::to_string(config.context));
    }
    Layout<T> layout(extent.recompute);
    Parts(layout, config, extent, 0);
    return layout;
  }

  // The matrices of linear maps, those of one shape together: where each begins in its arena.
  struct LinearMaps {
    Index O, I;
    std::vector<Index> offset_m;
  };
  static std::vector<LinearMaps> linear_maps(const Layout<T>& layout) {
    std::vector<LinearMaps> all;
    for (const Parameter& parameter : layout.parameters()) {
      if (parameter.kind != Kind::linear) continue;
      const Index O = parameter.shape[0], I = parameter.shape[1];
      const auto same =
          std::find_if(all.begin(), all.end(), [&](const auto& maps) { return maps.O == O && maps.I == I; });
      LinearMaps& maps = same != all.end() ? *same : all.emplace_back(LinearMaps{O, I, {}});
      maps.offset_m.push_back(parameter.offset);
    }
    return all;
  }

  void update_linear_maps(const TrainingConfig& training, const StepState* state) {
    for (const LinearMaps& maps : linear_maps_) {
      muon_update<Device, T>(device_,
                             {.weight = weights(),
                              .master = masters(),
                              .first_moment = first_moments(),
                              .d_weight = gradients(),
                              .offset_m = maps.offset_m.data(),
                              .matrices = static_cast<Index>(maps.offset_m.size()),
                              .O = maps.O,
                              .I = maps.I,
                              .settings = {.weight_decay = training.weight_decay, .rounds = training.muon_rounds},
                              .state = state});
    }
  }

  // Scratch memory of a training step on the largest batch: the same step on a device that only counts. A template, for
  // not every Device can.
  template <class Counting>
  static std::size_t workspace_bytes(const Counting& device, const ModelConfig& config, const NetworkExtent& extent) {
    Counting counter = device.counter();
    Network network(counter, config, extent);
    const DeviceMemory memory_bc(counter.memory(), bytes_of<Token>(extent.B * extent.C));
    const Token* tokens_bc = memory_bc.as<Token>();
    StepState state;
    const Pass pass{.B = extent.B, .C = extent.C, .state = &state};
    TrainingConfig training;
    training.optimizer = extent.muon ? "muon" : "adamw";
    differentiate(
        network, tokens_bc, tokens_bc, 0, pass, [](Index, Index, const Pass&, const Loss&) {}, [](Index, Index) {});
    network.measure_gradient(training, &state);
    network.update(training, &state);
    return counter.workspace.peak();
  }

  Dropout embedding_dropout(const Pass& pass) const {
    return dropout_of(pass, dropout_, sites::embedding_dropout, config_.channels);
  }

  Device& device_;
  ModelConfig config_;
  NetworkExtent extent_;
  double dropout_;
  Layout<T> measured_;
  DeviceMemory weights_, masters_, gradients_, partial_sums_, first_moments_, second_moments_, averages_, activations_,
      states_, carried_, adjoints_, borders_;
  std::vector<LinearMaps> linear_maps_;
  Layout<T> layout_;
  Parts parts_;
};

}  // namespace abh
