#pragma once

// Layers that bench measures, with shapes, inputs, and numbers of operations and bytes.

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "apps/bench/joined_layers.hpp"
#include "apps/bench/results.hpp"
#include "apps/bench/timing.hpp"
#include "apps/feature_cases.hpp"
#include "base/random.hpp"
#include "cases/attention.hpp"
#include "cases/causal_conv.hpp"
#include "cases/cross_entropy.hpp"
#include "cases/device_arrays.hpp"
#include "cases/dropout.hpp"
#include "cases/embedding.hpp"
#include "cases/gate.hpp"
#include "cases/gelu.hpp"
#include "cases/layernorm.hpp"
#include "cases/linear.hpp"
#include "cases/metric_key.hpp"
#include "cases/pooling.hpp"
#include "cases/pooling_logits.hpp"
#include "layers/adamw.hpp"
#include "layers/global_norm.hpp"
#include "layers/muon.hpp"
#include "layers/weight_average.hpp"
#include "network/model.hpp"
#include "settings/config.hpp"

namespace abh {

// Measures every layer with the shapes of a model, on arrays of random numbers.
template <class Device, class T>
class LayerBench {
 public:
  LayerBench(Device& device, const ModelConfig& config, Index batch, double seconds, const PeakRate& peak,
             std::vector<Row>& rows)
      : device_(device), config_(config), B_(batch), C_(config.context), seconds_(seconds), peak_(peak), rows_(rows) {
    for (std::size_t i = 0; i < random_numbers_.size(); ++i) {
      random_numbers_[i] = static_cast<float>(normal_number(1, i, 0, 0));
    }
  }

  void run() {
    const Index B = B_, C = C_, BC = B * C, D = config_.channels, F = config_.ffn_channels(), V = config_.vocabulary;
    const Index N = config_.heads, K = config_.mixer_head_channels();
    const PoolingShape pool{B, C, N, D / N, config_.windows().front()};
    const CausalConvShape conv{B, C, D, config_.convolution_groups(), config_.conv_kernel};
    const Token* tokens = copy_of(token_ids(BC, V));
    Index* count = copy_of(std::vector<Index>(1));
    const Dropout dropout{0.1, sites::embedding_dropout, copy_of(std::vector<StepState>(1))};
    // Last arguments: flops per element, forward and backward.
    linear("linear, qkv", D, 3 * D);
    linear("linear, up", D, F);
    linear("linear, down", F, D);
    linear("linear, logits", D, V);
    layer("layernorm", LayernormCase{.BC = BC, .D = D}, BC * D, 8, 14);
    layer("gelu", GeluCase{.count = BC * F}, BC * F, 38, 38);
    layer("dropout", DropoutCase{.count = BC * D, .dropout = dropout}, BC * D, 1, 1);
    layer("embedding", EmbeddingCase{.B = B, .C = C, .D = D, .V = V, .P = C, .tokens_bc = tokens}, BC * D, 1, 2);
    if (conv.kernel)
      layer("causal_conv", CausalConvCase{.shape = conv}, BC * CausalConvCase{.shape = conv}.taps(), 2, 4);
    layer("pooling_logits", PoolingLogitsCase{.B = B, .C = C, .N = N, .K = D / N}, BC * D, 2, 4);
    layer("pooling", PoolingCase{.shape = pool}, BC * D, 3, 6);
    layer("pooling_decay", PoolingCase{.shape = {B, C, N, D / N}, .decays = true}, BC * D, 3, 6);
    layer("gate", GateCase{.BC = BC, .D = D, .residual = false, .dropout = dropout}, BC * D, 2, 4);
    const Index whole = C * (C + 1) / 2, near = 256;  // pairs of positions; keys of a window
    attention("attention", {.B = B, .C = C, .N = N, .K = K}, whole);
    attention("attention, alibi", {.B = B, .C = C, .N = N, .K = K, .distances = C}, whole);
    if (C > near) {
      attention("attention, window of " + std::to_string(near), {.B = B, .C = C, .N = N, .K = K, .window = near},
                near * (near + 1) / 2 + (C - near) * near);
    }
    layer("metric_key", MetricKeyCase{.BC = BC, .N = N, .K = K}, BC * N * K * K, 2, 4);
    layer("cross_entropy", CrossEntropyCase{.BC = BC, .V = V, .targets_bc = tokens, .count = count}, BC * V, 20, 20);
    if constexpr (Device::joins_layers) JoinedLayersBench<Device, T, LayerBench>(*this, dropout).run();
    FeatureCases::measure(*this);
    optimizers();
  }

  // Public for the cases of features, like layer, attention, measure and copy_of.
  Device& device() { return device_; }
  const ModelConfig& config() const { return config_; }
  Index B() const { return B_; }
  Index C() const { return C_; }
  Index D() const { return config_.channels; }
  Index N() const { return config_.heads; }
  Index K() const { return config_.mixer_head_channels(); }

  using Arrays = DeviceArrays<Device, T>;
  // One row of the table. bytes: every array counted once.
  struct PassContext {
    std::string layer, name;
    double flops, bytes;
    std::function<void(Arrays&)> call;
  };

  template <class Element>
  Element* copy_of(const std::vector<Element>& values) {
    const std::size_t bytes = values.size() * sizeof(Element);
    Element* copy = copies_.emplace_back(device_.memory(), bytes).template as<Element>();
    device_.copy_from_host(copy, values.data(), static_cast<Index>(values.size()));
    return copy;
  }
  static std::vector<Token> token_ids(Index count, Index V) {
    std::vector<Token> ids(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<Token>(philox_word(1, i, 0, 0) % V);
    return ids;
  }

  // Fills an array with normally distributed numbers that repeat after 2^20. Each array begins at another number.
  template <class Element>
  void fill(Element* array, Index count, bool positive) {
    const std::size_t period = random_numbers_.size();
    std::vector<Element> first(std::min(static_cast<std::size_t>(count), period));
    ++filled_;
    for (std::size_t i = 0; i < first.size(); ++i) {
      const float number = random_numbers_[(i + 7919 * filled_) % period];
      first[i] = Element(positive ? std::abs(number) : number);
    }
    Index done = static_cast<Index>(first.size());
    device_.copy_from_host(array, first.data(), done);
    for (Index more; done < count; done += more) {
      more = std::min(done, count - done);
      device_.copy(array + done, array, more);
    }
  }

  // Measures the passes in order, on the number of sets of arrays for the device.
  template <class Case>
  void measure(const Case& layer, const std::vector<PassContext>& passes, bool positive = false) {
    std::deque<Arrays> sets;
    while (sets.empty() || static_cast<Index>(sets.size()) < sets_wanted(device_, sets.front().bytes())) {
      sets.emplace_back(device_, layer).for_each([&](DeviceArray<Device, T>& array) {
        array.wide() ? fill(array.template as<Accum<T>>(), array.count(), positive)
                     : fill(array.template as<T>(), array.count(), positive);
      });
    }
    for (const PassContext& pass : passes) {
      Calls calls;
      for (Arrays& arrays : sets) calls.push_back([&] { pass.call(arrays); });
      const Timing timing = call_timing(device_, seconds_, pass.flops, peak_, calls);
      rows_.push_back({pass.layer, pass.name, timing, pass.flops, pass.bytes});
    }
  }

  static double bytes_of(const std::vector<TensorSpec>& slots, bool gradients = false) {
    std::size_t bytes = 0;
    for (const TensorSpec& slot : slots) {
      if (gradients && slot.constant) continue;
      const bool wide = slot.wide || (gradients && slot.weight);
      bytes += static_cast<std::size_t>(slot.count()) * (wide ? sizeof(Accum<T>) : sizeof(T));
    }
    return static_cast<double>(bytes);
  }

  template <class Case>
  void layer(const std::string& name, const Case& layer, Index elements, double forward_flops, double backward_flops) {
    const double read = bytes_of(layer.inputs()) + bytes_of(saved_slots(layer)), out = bytes_of(layer.outputs());
    const double count = static_cast<double>(elements);
    measure(layer, {{name, "forward", forward_flops * count, read + out, [&](Arrays& a) { layer.forward(device_, a); }},
                    {name, "backward", backward_flops * count, read + out + bytes_of(layer.inputs(), true),
                     [&](Arrays& a) { layer.backward(device_, a); }}});
  }

  // pairs: unmasked pairs of query and key per sequence.
  void attention(const std::string& name, const AttentionCase& core, Index pairs) {
    layer(name, core, core.B * core.N * core.K * pairs, 4, 8);
  }

 private:
  void linear(const std::string& name, Index I, Index O) {
    layer(name, LinearCase{.BC = B_ * C_, .I = I, .O = O, .bias = true}, B_ * C_ * I * O, 2, 4);
  }

  // Arrays of the optimizer. None of them has a gradient.
  struct UpdateSlots {
    Index count;
    std::vector<TensorSpec> inputs() const { return {}; }
    std::vector<TensorSpec> outputs() const { return {}; }
    std::vector<TensorSpec> saved() const {
      constexpr bool narrow = !std::is_same_v<T, Accum<T>>;  // then there are master weights, too
      return {activation("weight", {count}), statistic("master", {narrow ? count : 0}),
              statistic("first_moment", {count}), statistic("second_moment", {count}), statistic("d_weight", {count})};
    }
  };

  void optimizers() {
    const Index count = model_memory({.device = "cpu"}, config_, {}).weights;
    StepState* state = copy_of(std::vector<StepState>{{.average_share = 0.5}});  // a learning rate of 0
    const std::vector<TensorSpec> slots = UpdateSlots{count}.saved();
    const double numbers = static_cast<double>(count), gradient = bytes_of({slots[4]});
    // An update reads and writes the moments and the exact weights. Weights beside a master copy are only written.
    const double accesses = std::is_same_v<T, Accum<T>> ? 2 : 1;
    const double bytes = accesses * bytes_of({slots[0]}) + 2 * bytes_of({slots[1], slots[2], slots[3]}) + gradient;

    // One matrix of every feed-forward block.
    const Index O = config_.ffn_channels(), I = config_.channels, S = std::min(O, I), longer = std::max(O, I);
    std::vector<Index> offset_m;
    for (Index layer = 0; layer < config_.layers; ++layer) offset_m.push_back(layer * O * I);
    const std::vector<TensorSpec> up = UpdateSlots{config_.layers * O * I}.saved();

    measure(UpdateSlots{count},
            {{"global_norm", "step", 2 * numbers, gradient,
              [&](Arrays& a) { global_norm<Device, T>(device_, state, a.saved[4].data(), 1, count); }},
             {"adamw", "step", 15 * numbers, bytes,
              [&](Arrays& a) {
                adamw_update<Device, T>(device_, {.weight = a.saved[0].data(),
                                                  .master = a.saved[1].data(),
                                                  .first_moment = a.saved[2].data(),
                                                  .second_moment = a.saved[3].data(),
                                                  .d_weight = a.saved[4].data(),
                                                  .state = state,
                                                  .count = count});
              }},
             {"weight_average", "step", 3 * numbers, 3 * gradient,
              [&](Arrays& a) {
                // Averages the gradients: they have the type of the master weights.
                weight_average_update<Device, T>(device_, a.saved[2].data(), a.saved[4].data(), state, count);
              }},
             {"muon, up", "step", static_cast<double>(config_.layers * 10 * S * S * (2 * longer + S)),
              accesses * bytes_of({up[0]}) + 2 * bytes_of({up[1], up[2]}) + bytes_of({up[4]}),
              [&](Arrays& a) {
                muon_update<Device, T>(device_, {.weight = a.saved[0].data(),
                                                 .master = a.saved[1].data(),
                                                 .first_moment = a.saved[2].data(),
                                                 .d_weight = a.saved[4].data(),
                                                 .offset_m = offset_m.data(),
                                                 .matrices = config_.layers,
                                                 .O = O,
                                                 .I = I,
                                                 .settings = {},
                                                 .state = state});
              }}},
            true);
  }

  Device& device_;
  const ModelConfig& config_;
  Index B_, C_;
  double seconds_;
  const PeakRate& peak_;
  std::vector<Row>& rows_;
  std::vector<float> random_numbers_ = std::vector<float>(1 << 20);
  std::size_t filled_ = 0;  // number of filled arrays
  std::deque<DeviceMemory> copies_;
};

}  // namespace abh
