#pragma once

// The layers that bench measures: at which shapes, on what, and how many operations and bytes that is.

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "apps/bench/results.hpp"
#include "apps/bench/timing.hpp"
#include "base/random.hpp"
#include "layers/adamw.hpp"
#include "layers/attention.hpp"
#include "layers/causal_conv.hpp"
#include "layers/cross_entropy.hpp"
#include "layers/dropout.hpp"
#include "layers/embedding.hpp"
#include "layers/gate.hpp"
#include "layers/gelu.hpp"
#include "layers/global_norm.hpp"
#include "layers/layernorm.hpp"
#include "layers/linear.hpp"
#include "layers/metric_attention.hpp"
#include "layers/muon.hpp"
#include "layers/pooling.hpp"
#include "layers/pooling_logits.hpp"
#include "network/model.hpp"
#include "settings/config.hpp"

namespace abh {

// Every layer at the shapes that a model has, on arrays of random numbers.
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
    const Index D = config_.channels, F = config_.ffn_channels(), V = config_.vocabulary;
    measure([&] { linear("linear, qkv", D, 3 * D); });
    measure([&] { linear("linear, up", D, F); });
    measure([&] { linear("linear, down", F, D); });
    measure([&] { linear("linear, logits", D, V); });
    measure([&] { layernorm(); });
    measure([&] { gelu(); });
    measure([&] { dropout(); });
    measure([&] { embedding(); });
    if (config_.conv_kernel) measure([&] { convolution(); });
    measure([&] { additive(); });
    measure([&] { dot_product(); });
    measure([&] { metric(); });
    measure([&] { cross_entropy(); });
    measure([&] { optimizer(); });
  }

 private:
  using Sum = Accum<T>;

  Index BC() const { return B_ * C_; }
  template <class Number = T>
  static double size(Index count) {
    return static_cast<double>(count) * sizeof(Number);
  }

  // Memory that lives as long as its layer is measured.
  template <class Number>
  Number* room(Index count) {
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(Number);
    bytes_ += bytes;
    return memory_.emplace_back(device_.memory(), bytes).template as<Number>();
  }
  template <class Number>
  Number* copy_of(const std::vector<Number>& values) {
    Number* copy = room<Number>(static_cast<Index>(values.size()));
    device_.copy_from_host(copy, values.data(), static_cast<Index>(values.size()));
    return copy;
  }

  // An array of normal random numbers: a million of them, over and over. Every array begins elsewhere among them.
  template <class Number = T>
  Number* array(Index count, bool positive = false) {
    Number* numbers = room<Number>(count);
    const std::size_t period = random_numbers_.size();
    std::vector<Number> first(std::min(static_cast<std::size_t>(count), period));
    for (std::size_t i = 0; i < first.size(); ++i) {
      const float number = random_numbers_[(i + 7919 * memory_.size()) % period];
      first[i] = Number(positive ? std::abs(number) : number);
    }
    Index filled = static_cast<Index>(first.size());
    device_.copy_from_host(numbers, first.data(), filled);
    for (Index more; filled < count; filled += more) {
      more = std::min(filled, count - filled);
      device_.copy(numbers + filled, numbers, more);
    }
    return numbers;
  }

  // What a step of training is: dropout, seed, learning rate 0.
  StepState* state() { return copy_of(std::vector<StepState>(1)); }

  // Lays a layer's arrays out as often as the device wants, then measures its passes in order.
  void measure(const std::function<void()>& layer) {
    Index sets = 1;
    for (Index set = 0; set < sets; ++set) {
      next_ = 0;
      layer();
      if (set == 0) sets = sets_wanted(device_, bytes_);
    }
    for (const Pass& pass : passes_) {
      const Timing timing = call_timing(device_, seconds_, pass.flops, peak_, pass.calls);
      rows_.push_back({pass.layer, pass.name, timing, pass.flops, pass.bytes});
    }
    passes_.clear();
    memory_.clear();
    bytes_ = 0;
  }

  void time(const std::string& layer, const std::string& name, double flops, double bytes,
            const std::function<void()>& call) {
    if (next_ == passes_.size()) passes_.push_back({layer, name, flops, bytes, {}});
    passes_[next_++].calls.push_back(call);
  }

  void linear(const std::string& name, Index I, Index O) {
    T *in = array(BC() * I), *out = array(BC() * O), *weight = array(I * O), *bias = array(O);
    T* d_in = array(BC() * I);
    Sum *d_weight = array<Sum>(I * O), *d_bias = array<Sum>(O);
    const double flops = 2.0 * static_cast<double>(BC()) * static_cast<double>(I * O);
    const double bytes = size(BC() * I + BC() * O + I * O);
    time(name, "forward", flops, bytes, [=, this] {
      linear_forward<Device, T>(
          device_, {.out_bco = out, .in_bci = in, .weight_oi = weight, .bias_o = bias, .BC = BC(), .I = I, .O = O});
    });
    time(name, "backward", 2 * flops, 2 * bytes, [=, this] {
      linear_backward_input<Device, T>(
          device_, {.d_in_bci = d_in, .d_out_bco = out, .weight_oi = weight, .BC = BC(), .I = I, .O = O});
      linear_backward_weight<Device, T>(
          device_,
          {.d_weight_oi = d_weight, .d_bias_o = d_bias, .d_out_bco = out, .in_bci = in, .BC = BC(), .I = I, .O = O});
    });
  }

  void layernorm() {
    const Index D = config_.channels, count = BC() * D;
    T *in = array(count), *out = array(count), *weight = array(D), *bias = array(D), *d_in = array(count);
    Sum *mean = array<Sum>(BC()), *rstd = array<Sum>(BC()), *d_weight = array<Sum>(D), *d_bias = array<Sum>(D);
    time("layernorm", "forward", 8.0 * static_cast<double>(count), size(2 * count),
         [=, this] { layernorm_forward<Device, T>(device_, out, mean, rstd, in, weight, bias, BC(), D); });
    time("layernorm", "backward", 14.0 * static_cast<double>(count), size(4 * count), [=, this] {
      layernorm_backward<Device, T>(device_, {.d_in_bcd = d_in,
                                              .d_weight_d = d_weight,
                                              .d_bias_d = d_bias,
                                              .d_out_bcd = out,
                                              .d_residual_bcd = out,
                                              .in_bcd = in,
                                              .mean_bc = mean,
                                              .rstd_bc = rstd,
                                              .weight_d = weight,
                                              .BC = BC(),
                                              .D = D});
    });
  }

  void gelu() {
    const Index count = BC() * config_.ffn_channels();
    T *in = array(count), *out = array(count), *d_in = array(count);
    time("gelu", "forward", 38.0 * static_cast<double>(count), size(2 * count),
         [=, this] { gelu_forward<Device, T>(device_, out, in, count, GeluForm::erf); });
    time("gelu", "backward", 38.0 * static_cast<double>(count), size(3 * count),
         [=, this] { gelu_backward<Device, T>(device_, d_in, out, in, count, GeluForm::erf); });
  }

  void dropout() {
    const Index count = BC() * config_.channels;
    T *in = array(count), *out = array(count), *residual = array(count);
    const Dropout settings{0.1, sites::embedding_dropout, state()};
    time("dropout", "forward", 2.0 * static_cast<double>(count), size(3 * count),
         [=, this] { dropout_forward<Device, T>(device_, out, in, residual, settings, count); });
    time("dropout", "backward", static_cast<double>(count), size(2 * count),
         [=, this] { dropout_backward<Device, T>(device_, out, in, settings, count); });
  }

  void embedding() {
    const Index D = config_.channels, V = config_.vocabulary;
    T *out = array(BC() * D), *token = array(V * D), *position = array(C_ * D);
    Sum *d_token = array<Sum>(V * D), *d_position = array<Sum>(C_ * D);
    std::vector<Token> tokens_bc(static_cast<std::size_t>(BC()));
    for (std::size_t i = 0; i < tokens_bc.size(); ++i) tokens_bc[i] = static_cast<Token>(philox_word(1, i, 0, 0) % V);
    const Token* tokens = copy_of(tokens_bc);
    time("embedding", "forward", static_cast<double>(BC() * D), size(2 * BC() * D),
         [=, this] { embedding_forward<Device, T>(device_, out, tokens, token, position, B_, C_, D); });
    time("embedding", "backward", 2.0 * static_cast<double>(BC() * D), size(2 * BC() * D),
         [=, this] { embedding_backward<Device, T>(device_, d_token, d_position, out, tokens, B_, C_, D, V); });
  }

  void convolution() {
    const CausalConvShape shape{B_, C_, config_.channels, config_.convolution_groups(), config_.conv_kernel};
    const Index count = BC() * shape.D, weights = shape.D * (shape.D / shape.groups) * shape.kernel;
    T *in = array(count), *out = array(count), *weight = array(weights), *d_in = array(count);
    Sum* d_weight = array<Sum>(weights);
    const double flops = 2.0 * static_cast<double>(BC()) * static_cast<double>(weights);
    time("causal_conv", "forward", flops, size(2 * count + weights),
         [=, this] { causal_conv_forward<Device, T>(device_, out, in, weight, shape); });
    time("causal_conv", "backward", 2 * flops, size(4 * count + 2 * weights),
         [=, this] { causal_conv_backward<Device, T>(device_, d_in, d_weight, out, in, weight, shape); });
  }

  void additive() {
    const Index N = config_.heads, K = config_.channels / N, count = BC() * config_.channels;
    const PoolingShape shape{B_, C_, N, K, config_.windows().front()};
    T *x = array(count), *out = array(count), *pool = array(N * K), *d_x = array(count);
    Sum *logit = array<Sum>(BC() * N), *max = array<Sum>(BC() * N), *sum = array<Sum>(BC() * N);
    Sum *d_logit = array<Sum>(BC() * N), *d_pool = array<Sum>(N * K);
    time("additive pooling", "forward", 5.0 * static_cast<double>(count), size(3 * count), [=, this] {
      pooling_logits_forward<Device, T>(
          device_, {.logit_bnc = logit, .x_bch = x, .pool_nk = pool, .B = B_, .C = C_, .N = N, .K = K});
      pooling_forward<Device, T>(
          device_, {.out_bch = out, .max_bnc = max, .sum_bnc = sum, .logit_bnc = logit, .x_bch = x, .shape = shape});
    });
    time("additive pooling", "backward", 10.0 * static_cast<double>(count), size(7 * count), [=, this] {
      pooling_backward<Device, T>(device_, {.d_x_bch = d_x,
                                            .d_logit_bnc = d_logit,
                                            .d_out_bch = out,
                                            .out_bch = out,
                                            .max_bnc = max,
                                            .sum_bnc = sum,
                                            .logit_bnc = logit,
                                            .x_bch = x,
                                            .shape = shape});
      pooling_logits_backward<Device, T>(device_, {.d_x_bch = d_x,
                                                   .d_pool_nk = d_pool,
                                                   .d_logit_bnc = d_logit,
                                                   .x_bch = x,
                                                   .pool_nk = pool,
                                                   .B = B_,
                                                   .C = C_,
                                                   .N = N,
                                                   .K = K});
    });
  }

  void dot_product() {
    const Index N = config_.heads, K = config_.mixer_head_channels(), count = BC() * N * K;
    T *query = array(count), *key = array(count), *value = array(count), *out = array(count);
    T *d_query = array(count), *d_key = array(count), *d_value = array(count);
    Sum* lse = array<Sum>(BC() * N);
    const double pairs = static_cast<double>(BC() * N * K) * static_cast<double>(C_ + 1) / 2;
    time("dot_product core", "forward", 4 * pairs, size(4 * count), [=, this] {
      attention_forward<Device, T>(device_, {.out_bch = out,
                                             .lse_bnc = lse,
                                             .query_bch = query,
                                             .key_bch = key,
                                             .value_bch = value,
                                             .B = B_,
                                             .C = C_,
                                             .N = N,
                                             .K = K});
    });
    time("dot_product core", "backward", 8 * pairs, size(8 * count), [=, this] {
      attention_backward<Device, T>(device_, {.d_query_bch = d_query,
                                              .d_key_bch = d_key,
                                              .d_value_bch = d_value,
                                              .d_out_bch = out,
                                              .out_bch = out,
                                              .lse_bnc = lse,
                                              .query_bch = query,
                                              .key_bch = key,
                                              .value_bch = value,
                                              .B = B_,
                                              .C = C_,
                                              .N = N,
                                              .K = K});
    });
  }

  void metric() {
    const Index N = config_.heads, K = config_.mixer_head_channels(), count = BC() * N * K;
    const Index packed = metric_count(MetricForm::packed, N, K);
    T *project = array(count), *key = array(count), *d_project = array(count), *metric = array(packed);
    Sum* d_metric = array<Sum>(packed);
    const double flops = 2.0 * static_cast<double>(count * K);
    time("metric key", "forward", flops, size(2 * count),
         [=, this] { metric_key_forward<Device, T>(device_, key, project, metric, MetricForm::packed, BC(), N, K); });
    time("metric key", "backward", 2 * flops, size(4 * count), [=, this] {
      metric_key_backward<Device, T>(device_, {.d_project_bch = d_project,
                                               .d_metric = d_metric,
                                               .d_key_bch = key,
                                               .project_bch = project,
                                               .metric = metric,
                                               .BC = BC(),
                                               .N = N,
                                               .K = K});
    });
  }

  void cross_entropy() {
    const Index V = config_.vocabulary, count = BC() * V;
    T *logits = array(count), *d_logits = array(count);
    Sum *loss = array<Sum>(1), *loss_bc = array<Sum>(BC()), *lse = array<Sum>(BC());
    Index* rows = room<Index>(1);
    const Token* targets = copy_of(std::vector<Token>(static_cast<std::size_t>(BC()), 0));
    time("cross_entropy", "forward", 20.0 * static_cast<double>(count), size(count), [=, this] {
      cross_entropy_forward<Device, T>(device_, {.loss = loss,
                                                 .loss_bc = loss_bc,
                                                 .lse_bc = lse,
                                                 .count = rows,
                                                 .logits_bcv = logits,
                                                 .targets_bc = targets,
                                                 .BC = BC(),
                                                 .V = V});
    });
    time("cross_entropy", "backward", 20.0 * static_cast<double>(count), size(2 * count), [=, this] {
      cross_entropy_backward<Device, T>(device_, {.d_logits_bcv = d_logits,
                                                  .logits_bcv = logits,
                                                  .lse_bc = lse,
                                                  .count = rows,
                                                  .targets_bc = targets,
                                                  .BC = BC(),
                                                  .V = V});
    });
  }

  void optimizer() {
    const Index count = model_memory({.device = "cpu"}, config_, {}).weights;
    constexpr bool narrow = !std::is_same_v<T, Sum>;  // then there are weights in full precision beside the narrow ones
    T* weight = array(count);
    Sum *master = narrow ? array<Sum>(count) : nullptr, *first = array<Sum>(count), *second = array<Sum>(count, true);
    Sum* d_weight = array<Sum>(count);
    StepState* step = state();
    time("global_norm", "step", 2.0 * static_cast<double>(count), size<Sum>(count),
         [=, this] { global_norm<Device, T>(device_, step, d_weight, 1, count); });
    const double bytes = narrow ? size<Sum>(7 * count) + size(count) : size(7 * count);
    time("adamw", "step", 15.0 * static_cast<double>(count), bytes, [=, this] {
      adamw_update<Device, T>(device_, {.weight = weight,
                                        .master = master,
                                        .first_moment = first,
                                        .second_moment = second,
                                        .d_weight = d_weight,
                                        .state = step,
                                        .count = count});
    });

    // One matrix of every feed-forward net.
    const Index O = config_.ffn_channels(), I = config_.channels, S = std::min(O, I), longer = std::max(O, I);
    std::vector<Index> offset_m;
    for (Index layer = 0; layer < config_.layers; ++layer) offset_m.push_back(layer * O * I);
    const Index matrices = config_.layers, numbers = matrices * O * I;
    time("muon, up", "step", static_cast<double>(matrices * 10 * S * S * (2 * longer + S)),
         narrow ? size<Sum>(5 * numbers) + size(numbers) : size(5 * numbers), [=, this] {
           muon_update<Device, T>(device_, {.weight = weight,
                                            .master = master,
                                            .first_moment = first,
                                            .d_weight = d_weight,
                                            .offset_m = offset_m.data(),
                                            .matrices = matrices,
                                            .O = O,
                                            .I = I,
                                            .settings = {},
                                            .state = step});
         });
  }

  struct Pass {
    std::string layer, name;
    double flops, bytes;
    Calls calls;  // one a set of arrays
  };

  Device& device_;
  const ModelConfig& config_;
  Index B_, C_;
  double seconds_;
  const PeakRate& peak_;
  std::vector<Row>& rows_;
  std::vector<float> random_numbers_ = std::vector<float>(1 << 20);
  std::vector<Pass> passes_;  // of the layer being measured
  std::size_t next_ = 0;      // pass of the set being laid out
  std::deque<DeviceMemory> memory_;
  std::size_t bytes_ = 0;  // in memory_
};

}  // namespace abh
