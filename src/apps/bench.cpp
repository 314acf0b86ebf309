// bench: how fast training and each layer are, beside what this machine can do at most.

#include <unistd.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <deque>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "base/bf16.hpp"
#include "cpu/cpu.hpp"
#include "files/atomic_file.hpp"
#include "settings/config.hpp"
#if defined(ABH_CUDA) || defined(ABH_EMULATOR)
#include "cuda/gpu.hpp"
#endif
#include "base/error.hpp"
#include "base/random.hpp"
#include "device/isa.hpp"
#include "device/peaks.hpp"
#include "device/threads.hpp"
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
#include "program/flags.hpp"

namespace abh {
namespace {

// How long something takes, and how many of the multiply-adds that the machine could have made.
struct Timing {
  double milliseconds;
  double share_of_peak = 0;  // 0: not measured
};

struct Row {
  std::string layer, pass;
  Timing timing;
  double flops, bytes;
};

struct StepRow {
  std::string mixer;
  Timing timing;
  Index tokens_per_s;
  double flops;
  double activation_bytes;      // a token, saved for backward
  std::size_t peak_bytes;       // of this process while the row was measured; 0: not measured
  double page_faults_per_step;  // after the first step
};

// What the device can do at most: multiply-adds on the registers of a CPU, a matrix product on a GPU.
struct Peaks {
  std::string arithmetic = "multiply-add", key = "multiply_add_flops_per_s";
  double flops_per_s = 0, copy_bytes_per_s = 0;  // 0: not measured
};

struct Results {
  std::string device, type;
  Peaks peaks;
  std::vector<StepRow> steps;
  std::vector<Row> layers;
};

using Clock = std::chrono::steady_clock;

double seconds_of(const std::function<void()>& call) {
  const auto begin = Clock::now();
  call();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Median time of one call in milliseconds, over about `seconds` and at least `least` calls, after one that is not
// counted.
double median_milliseconds(double seconds, const std::function<void()>& call, std::size_t least = 5) {
  call();
  std::vector<double> times;
  for (double spent = 0; spent < seconds || times.size() < least; spent += times.back()) {
    times.push_back(seconds_of(call));
  }
  return 1e3 * median(times);
}

// Multiply-adds a second over a window of so many seconds. Empty for a GPU.
using PeakRate = std::function<double(double seconds)>;

// The same, and with a peak in turn with it: what other programs take from the machine changes from one moment to the
// next, so each call is compared with the peak just before it, over a window about as long, and what counts is the
// median of the shares. `seconds` is the time for both.
Timing median_timing(double seconds, double flops, const PeakRate& peak, const std::function<void()>& call,
                     std::size_t least = 5) {
  if (!peak) return {median_milliseconds(seconds, call, least)};
  const double shortest_window = 1e-3;
  std::vector<double> times, shares;
  double last = seconds_of(call);
  for (double spent = 0; spent < seconds || times.size() < least;) {
    const double window = std::max(last, shortest_window), rate = peak(window);
    times.push_back(last = seconds_of(call));
    shares.push_back(flops / last / rate);
    spent += window + last;
  }
  return {1e3 * median(times), median(shares)};
}

// Flops of a training step: six a matrix parameter and token, and for softmax attention 12 C D / 2 a layer and token.
double training_flops(const ModelConfig& config, Index tokens) {
  double parameters = 0;
  for (const Parameter& parameter : parameter_table(config)) {
    if (parameter.kind != Kind::undecayed) parameters += static_cast<double>(parameter.count);
  }
  double attention = 0;
  for (Mixer mixer : config.mixers()) {
    if (mixer == Mixer::additive) continue;
    const Index H = config.heads * config.mixer_head_channels();
    attention += 6.0 * static_cast<double>(config.context * H);
  }
  return (6 * parameters + attention) * static_cast<double>(tokens);
}

// The same work on several sets of arrays.
using Calls = std::vector<std::function<void()>>;

// Median time of one call. On the CPU there is one set: layers find their arrays in its caches, as the blocks of a
// small model do.
template <Isa isa>
Timing call_timing(CpuDevice<isa>&, double seconds, double flops, const PeakRate& peak, const Calls& calls) {
  return median_timing(seconds, flops, peak, calls.front());
}
template <Isa isa>
Index sets_wanted(const CpuDevice<isa>&, std::size_t) {
  return 1;
}

#if defined(ABH_CUDA) || defined(ABH_EMULATOR)
// A GPU works behind the host's back, and a launch can take longer than its kernel: what is timed is a recording of
// many calls, up to the moment when the GPU is done with all of them. The calls go from set to set.
template <Backend backend>
Timing call_timing(GpuDevice<backend>& device, double seconds, double, const PeakRate&, const Calls& calls) {
  if (backend == Backend::emulated) return {median_milliseconds(seconds, calls.front(), 1)};
  const auto round = [&] {
    for (const auto& call : calls) call();
  };
  const double round_milliseconds = median_milliseconds(
      0,
      [&] {
        round();
        device.synchronize();
      },
      1);
  const double batch_milliseconds = 2;
  const double rounds = std::clamp(std::floor(batch_milliseconds / round_milliseconds), 1.0, 100.0);
  typename GpuDevice<backend>::Recording recording;
  const auto batch = [&] {
    recording.run(device, [&] {
      for (double done = 0; done < rounds; ++done) round();
    });
    device.synchronize();
  };
  batch();  // not recorded yet; the call that median_milliseconds does not count records
  return {median_milliseconds(seconds, batch) / (rounds * static_cast<double>(calls.size()))};
}

// As many sets as no cache of a GPU can hold.
template <Backend backend>
Index sets_wanted(const GpuDevice<backend>&, std::size_t bytes_of_one) {
  if (backend == Backend::emulated) return 1;
  const std::size_t beyond_caches = std::size_t{512} << 20;
  return static_cast<Index>(std::clamp<std::size_t>(beyond_caches / std::max<std::size_t>(bytes_of_one, 1) + 1, 1, 64));
}
#endif

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
    const Index count = model_memory(config_, {}).weights;
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

// What to measure, and with what.
struct BenchSettings {
  DeviceChoice device;
  ModelConfig config;
  TrainingConfig training;
  bool recompute = false;
  bool every_mixer = true;  // a training step with each kind of mixer, else with that of the configuration
  bool each_layer = true;   // else only the training step and the peaks
  double seconds = 0.2;
};

// One row for each mixer.
void bench_steps(const BenchSettings& s, const PeakRate& peak, Results& results) {
  std::vector<std::string> mixers = {s.config.mixer};
  if (s.every_mixer) mixers = {"additive", "metric", "quadratic", "dot"};
  for (const std::string& mixer : mixers) {
    ModelConfig one = s.config;
    one.mixer = mixer;
    const NetworkExtent extent{.B = s.training.batch,
                               .C = one.context,
                               .training = true,
                               .threads = s.device.threads,
                               .recompute = s.recompute};
    const NetworkMemory memory = model_memory(one, extent, s.training.type);
    require_memory(host_bytes(s.device, memory));
    reset_peak_memory();
    const std::unique_ptr<Model> model = make_model(s.device, one, extent, s.training.dropout, s.training.type);
    results.device = model->device_name();
    model->write(Model::Arena::weights,
                 initial_weights(parameter_table(one), one, s.training.init_std, s.training.seed));
    const Index tokens = s.training.batch * one.context;
    std::vector<Token> tokens_bc(static_cast<std::size_t>(tokens));
    for (std::size_t i = 0; i < tokens_bc.size(); ++i) {
      tokens_bc[i] = static_cast<Token>(philox_word(s.training.seed, i, 0, sites::batch) % one.vocabulary);
    }
    Index step = 0;
    long faults_before = 0;
    const auto make_step = [&] {
      model->train_step(tokens_bc, tokens_bc, s.training, step % s.training.steps);
      if (++step == 1) faults_before = page_faults();
    };
    const double flops = training_flops(one, tokens);
    const Timing timing =
        median_timing((peak ? 8 : 4) * s.seconds, flops, peak, make_step, s.device.device == "emulated" ? 1 : 5);
    const double faults = static_cast<double>(page_faults() - faults_before) / static_cast<double>(step - 1);
    results.steps.push_back({mixer, timing, static_cast<Index>(1e3 * static_cast<double>(tokens) / timing.milliseconds),
                             flops, static_cast<double>(memory.activation_bytes) / static_cast<double>(tokens),
                             peak_memory(), faults});
  }
}

template <Isa isa>
void bench_cpu(const BenchSettings& s, Results& results) {
  CpuDevice<isa> device(s.device.threads);
  const PeakRate peak = [&](double seconds) { return multiply_add_rate(device, seconds); };
  for (int repeat = 0; repeat < 20; ++repeat) {
    const double window = 5e-3;  // seconds; a thread that sleeps takes some of the first to wake up
    results.peaks.flops_per_s = std::max(results.peaks.flops_per_s, peak(window));
  }
  bench_steps(s, peak, results);
  results.peaks.copy_bytes_per_s = copy_rate(device, std::size_t{64} << 20);
  if (!s.each_layer) return;
  LayerBench<CpuDevice<isa>, float>(device, s.config, s.training.batch, s.seconds, peak, results.layers).run();
}

#if defined(ABH_CUDA) || defined(ABH_EMULATOR)
template <Backend backend, class T>
void bench_gpu(const BenchSettings& s, Results& results) {
  using Device = GpuDevice<backend>;
  const PeakRate no_peak;
  bench_steps(s, no_peak, results);
  results.type = s.training.type;
  results.peaks = {"matrix product", "matrix_product_flops_per_s"};
  if (backend == Backend::cuda) {
    // Whatever the layers compute their products with, the library's are what they are compared with.
    Device device(GemmChoice::library);
    results.peaks.flops_per_s = matrix_product_rate<Device, T>(device, 8192);
    results.peaks.copy_bytes_per_s = copy_rate(device, std::size_t{1} << 30);
  }
  if (!s.each_layer) return;
  Device device(s.device.gemm == "hand" ? GemmChoice::hand : GemmChoice::library);
  LayerBench<Device, T>(device, s.config, s.training.batch, s.seconds, no_peak, results.layers).run();
}

template <Backend backend>
void bench_gpu(const BenchSettings& s, Results& results) {
  s.training.type == "bf16" ? bench_gpu<backend, bf16>(s, results) : bench_gpu<backend, float>(s, results);
}
#endif

// Training steps, peaks and layers. A device that is not there is refused by the first model.
void bench(const BenchSettings& s, Results& results) {
#if defined(ABH_CUDA)
  if (resolved_device(s.device.device) == "cuda") return bench_gpu<Backend::cuda>(s, results);
#endif
#if defined(ABH_EMULATOR)
  if (s.device.device == "emulated") return bench_gpu<Backend::emulated>(s, results);
#endif
  switch (best_isa()) {
#if defined(ABH_AVX512)
    case Isa::avx512:
      return bench_cpu<Isa::avx512>(s, results);
#endif
#if defined(ABH_X86)
    case Isa::avx2:
      return bench_cpu<Isa::avx2>(s, results);
#endif
    default:
      return bench_cpu<Isa::baseline>(s, results);
  }
}

// "58.3%", or "-" where the peak was not measured.
std::string percent(double share) {
  if (!(share > 0)) return "-";
  char text[32];
  std::snprintf(text, sizeof text, "%.1f%%", 100 * share);
  return text;
}

// Of the peak in turn with it where there was one, else of the one of the whole run.
double share_of_peak(const Timing& timing, double flops, const Peaks& peaks) {
  if (timing.share_of_peak > 0) return timing.share_of_peak;
  return peaks.flops_per_s > 0 ? flops / timing.milliseconds * 1e3 / peaks.flops_per_s : 0;
}

double share_of_copy(const Timing& timing, double bytes, const Peaks& peaks) {
  return peaks.copy_bytes_per_s > 0 ? bytes / timing.milliseconds * 1e3 / peaks.copy_bytes_per_s : 0;
}

void print(const Results& r) {
  if (r.peaks.flops_per_s > 0) {
    std::printf("device: %s; measured peaks: %.1f GFLOP/s %s, %.1f GB/s copy\n\n", r.device.c_str(),
                r.peaks.flops_per_s / 1e9, r.peaks.arithmetic.c_str(), r.peaks.copy_bytes_per_s / 1e9);
  } else {
    std::printf("device: %s; an emulator has no peaks, and its times say nothing about a GPU\n\n", r.device.c_str());
  }
  std::printf("%-22s %10s %12s %10s %8s %11s %9s %11s\n", "training step, mixer", "ms", "tokens/s", "GFLOP/s",
              "of peak", "saved B/tok", "peak MiB", "faults/step");
  for (const StepRow& row : r.steps) {
    std::printf("%-22s %10.3f %12lld %10.1f %8s %11.0f %9.1f %11.2f\n", row.mixer.c_str(), row.timing.milliseconds,
                static_cast<long long>(row.tokens_per_s), row.flops / row.timing.milliseconds * 1e3 / 1e9,
                percent(share_of_peak(row.timing, row.flops, r.peaks)).c_str(), row.activation_bytes,
                static_cast<double>(row.peak_bytes) / (1 << 20), row.page_faults_per_step);
  }
  if (r.layers.empty()) return;
  std::printf("\n%-18s %-9s %10s %10s %8s %10s %8s\n", "layer", "pass", "ms", "GFLOP/s", "of peak", "GB/s", "of copy");
  for (const Row& row : r.layers) {
    std::printf(
        "%-18s %-9s %10.4f %10.1f %8s %10.1f %8s\n", row.layer.c_str(), row.pass.c_str(), row.timing.milliseconds,
        row.flops / row.timing.milliseconds / 1e6, percent(share_of_peak(row.timing, row.flops, r.peaks)).c_str(),
        row.bytes / row.timing.milliseconds / 1e6, percent(share_of_copy(row.timing, row.bytes, r.peaks)).c_str());
  }
}

std::string json_of(const Results& r) {
  const auto number = [](double measured) { return measured > 0 ? to_text(measured) : "null"; };
  const auto timing = [&](const Timing& t, double flops) {
    return "\"ms\": " + to_text(t.milliseconds) + ", \"flops\": " + to_text(flops) +
           ", \"gflop_per_s\": " + to_text(flops / t.milliseconds / 1e6) +
           ", \"of_peak\": " + number(share_of_peak(t, flops, r.peaks));
  };
  std::string json = "{\n  \"device\": \"" + r.device + "\"";
  if (!r.type.empty()) json += ",\n  \"type\": \"" + r.type + "\"";
  json += ",\n  \"" + r.peaks.key + "\": " + number(r.peaks.flops_per_s) +
          ",\n  \"copy_bytes_per_s\": " + number(r.peaks.copy_bytes_per_s) + ",\n  \"training\": [";
  const char* comma = "";
  for (const StepRow& row : r.steps) {
    json += std::string(comma) + "\n    {\"mixer\": \"" + row.mixer + "\", " + timing(row.timing, row.flops) +
            ", \"tokens_per_s\": " + to_text(row.tokens_per_s) +
            ", \"activation_bytes_per_token\": " + to_text(row.activation_bytes) +
            ", \"peak_bytes\": " + number(static_cast<double>(row.peak_bytes)) +
            ", \"page_faults_per_step\": " + to_text(row.page_faults_per_step) + "}";
    comma = ",";
  }
  json += "\n  ],\n  \"layers\": [";
  comma = "";
  for (const Row& row : r.layers) {
    json += std::string(comma) + "\n    {\"layer\": \"" + row.layer + "\", \"pass\": \"" + row.pass + "\", " +
            timing(row.timing, row.flops) + ", \"bytes\": " + to_text(row.bytes) +
            ", \"gb_per_s\": " + to_text(row.bytes / row.timing.milliseconds / 1e6) +
            ", \"of_copy\": " + number(share_of_copy(row.timing, row.bytes, r.peaks)) + "}";
    comma = ",";
  }
  return json + "\n  ]\n}\n";
}

// Hands over to tools/pytorch_reference.py, which measures the same training step in PyTorch and with this program in
// turn. Returns only where it cannot.
[[noreturn]] void run_peer(const std::string& python, const char* program, const std::string& preset,
                           const BenchSettings& s) {
  const std::string mixers = s.every_mixer ? "additive,metric,dot" : s.config.mixer;
  const std::string where = resolved_device(s.device.device);
  const std::string script = ABH_SOURCE_DIR "/tools/pytorch_reference.py";
  std::vector<std::string> words = {python,           script,
                                    "--bench",        program,
                                    "--preset",       preset,
                                    "--mixer",        mixers,
                                    "--type",         s.training.type,
                                    "--device",       where == "cuda" ? "cuda" : "cpu",
                                    "--bench-device", where,
                                    "--layers",       to_text(s.config.layers),
                                    "--channels",     to_text(s.config.channels),
                                    "--heads",        to_text(s.config.heads),
                                    "--context",      to_text(s.config.context),
                                    "--batch",        to_text(s.training.batch),
                                    "--dropout",      to_text(s.training.dropout),
                                    "--threads",      to_text(s.device.threads),
                                    "--recompute",    s.recompute ? "1" : "0",
                                    "--rounds",       "5"};
  if (where != "cuda") words.insert(words.end(), {"--modes", "eager,compile"});
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execvp(python.c_str(), arguments.data());
  throw Error("--peer: " + python + " cannot be run: " + std::strerror(errno));
}

int body(int argc, char** argv) {
  std::string preset = peek_preset(argc, argv), json, peer = "python3";
  BenchSettings s;
  ModelConfig& config = s.config;
  TrainingConfig& training = s.training;
  apply_preset(preset, config, training);
  config.vocabulary = 65;  // Tiny Shakespeare's
  Flags flags("bench", "Measures training and every layer beside this machine's peaks.");
  flags.choice("preset", preset, preset_names, "sizes to measure at");
  flags.text("mixer", config.mixer, "LIST", "of the training step; without it every kind is measured");
  flags.integer("layers", config.layers, "N", "layers of the training step", 1, largest_layers);
  flags.integer("channels", config.channels, "N", "embedding channels", 1, largest_channels);
  flags.integer("heads", config.heads, "N", "heads a layer; they divide the channels", 1, largest_channels);
  flags.integer("batch", training.batch, "SEQUENCES", "sequences a step", 1, largest_batch);
  flags.integer("context", config.context, "TOKENS", "length of a sequence", 1, largest_context);
  flags.real("dropout", training.dropout, "P", "dropout of the training step", {0, 1});
  flags.toggle("recompute", s.recompute, "the training step saves less and computes it again");
  flags.real("seconds", s.seconds, "S", "time for each measurement", {0, 3600});
  flags.toggle("each-layer", s.each_layer, "measure the layers one by one, too");
  flags.text("json", json, "FILE", "write the results there as well");
  flags.text("peer", peer, "PYTHON", "only compare the training step with PyTorch, which this Python has");
  add_machine_flags(flags, s.device);
  flags.choice("type", training.type, {"float", "bf16"}, "number type; bf16 on GPU devices only");
  flags.seed("seed", training.seed, "of weights and tokens");
  if (const auto status = flags.parse(argc, argv)) return *status;
  require_device(s.device, training.type);
  config.check();
  s.every_mixer = !flags.given("mixer");
  if (flags.given("peer")) {
    if (flags.given("json")) throw UsageError("--json: not with --peer, which prints what it measures");
    run_peer(peer, argv[0], preset, s);
  }
  if (flags.given("json")) {
    if (json.empty()) throw UsageError("--json: expected a file, found \"\"");
    const AtomicFile probe(json);  // what cannot be written is found now, not after the measurements
  }

#if defined(__GLIBC__)
  mallopt(M_MMAP_THRESHOLD, 1 << 20);  // what a model took goes back to the system: the next one has a peak of its own
#endif
  Results results;
  bench(s, results);
  print(results);
  if (!json.empty()) write_file_atomically(json, json_of(results));
  return 0;
}

}  // namespace
}  // namespace abh

int main(int argc, char** argv) { return abh::run_program("bench", argc, argv, abh::body); }
