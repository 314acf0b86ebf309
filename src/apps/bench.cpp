// bench: how fast training and each layer are, beside what this machine can do at most.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "atomic_file.hpp"
#include "config.hpp"
#include "cpu/cpu.hpp"
#include "error.hpp"
#include "flags.hpp"
#include "isa.hpp"
#include "layers/adamw.hpp"
#include "layers/additive_attention.hpp"
#include "layers/causal_conv.hpp"
#include "layers/cross_entropy.hpp"
#include "layers/dot_product_attention.hpp"
#include "layers/dropout.hpp"
#include "layers/embedding.hpp"
#include "layers/gelu.hpp"
#include "layers/global_norm.hpp"
#include "layers/layernorm.hpp"
#include "layers/linear.hpp"
#include "layers/metric_attention.hpp"
#include "model.hpp"
#include "peaks.hpp"
#include "random.hpp"
#include "threads.hpp"

namespace abh {
namespace {

struct Row {
  std::string layer, pass;
  double milliseconds, flops, bytes;
};

struct StepRow {
  std::string mixer;
  double milliseconds;
  Index tokens_per_s;
  double flops;
};

struct Results {
  std::string device;
  double multiply_add_rate = 0, copy_rate = 0;  // flops and bytes a second
  std::vector<StepRow> steps;
  std::vector<Row> layers;
};

// Median time of one call in milliseconds, over about `seconds` and at least five calls, after one that is not counted.
double median_milliseconds(double seconds, const std::function<void()>& call) {
  using Clock = std::chrono::steady_clock;
  call();
  std::vector<double> times;
  for (double spent = 0; spent < seconds || times.size() < 5;) {
    const auto begin = Clock::now();
    call();
    const double time = std::chrono::duration<double>(Clock::now() - begin).count();
    times.push_back(time);
    spent += time;
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return 1e3 * times[times.size() / 2];
}

// Flops of a training step: six a matrix parameter and token, and for softmax attention 12 C D / 2 a layer and token.
double training_flops(const ModelConfig& config, Index tokens) {
  double parameters = 0;
  for (const Parameter& parameter : parameter_table(config)) {
    if (parameter.decays) parameters += static_cast<double>(parameter.count);
  }
  double attention = 0;
  for (Mixer mixer : config.mixers()) {
    if (mixer == Mixer::additive) continue;
    const Index H = config.heads * config.mixer_head_channels();
    attention += 6.0 * static_cast<double>(config.context * H);
  }
  return (6 * parameters + attention) * static_cast<double>(tokens);
}

// Every layer at the shapes that a model has, on arrays of random numbers.
template <class Device>
class LayerBench {
 public:
  LayerBench(Device& device, const ModelConfig& config, Index batch, double seconds, std::vector<Row>& rows)
      : device_(device), config_(config), B_(batch), C_(config.context), seconds_(seconds), rows_(rows) {}

  void run() {
    const Index D = config_.channels, F = config_.ffn_channels(), V = config_.vocabulary;
    linear("linear, qkv", D, 3 * D);
    linear("linear, up", D, F);
    linear("linear, down", F, D);
    linear("linear, logits", D, V);
    layernorm();
    gelu();
    dropout();
    embedding();
    convolution();
    additive();
    dot_product();
    metric();
    cross_entropy();
    optimizer();
  }

 private:
  Index BC() const { return B_ * C_; }
  static double size(Index count) { return static_cast<double>(count) * sizeof(float); }

  // An array of normal random numbers that lives as long as the bench.
  float* array(Index count) {
    std::vector<float>& values = arrays_.emplace_back(static_cast<std::size_t>(count));
    const auto number = static_cast<std::uint32_t>(arrays_.size());
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(normal_number(1, i, number, 0));
    return values.data();
  }

  void time(const std::string& layer, const std::string& pass, double flops, double bytes,
            const std::function<void()>& call) {
    rows_.push_back({layer, pass, median_milliseconds(seconds_, call), flops, bytes});
    if (pass == "backward") arrays_.clear();
  }

  void linear(const std::string& name, Index I, Index O) {
    float *in = array(BC() * I), *out = array(BC() * O), *weight = array(I * O), *bias = array(O);
    float *d_in = array(BC() * I), *d_weight = array(I * O), *d_bias = array(O);
    const double flops = 2.0 * static_cast<double>(BC()) * static_cast<double>(I * O);
    const double bytes = size(BC() * I + BC() * O + I * O);
    time(name, "forward", flops, bytes, [=, this] {
      linear_forward<Device, float>(
          device_, {.out_bco = out, .in_bci = in, .weight_oi = weight, .bias_o = bias, .BC = BC(), .I = I, .O = O});
    });
    time(name, "backward", 2 * flops, 2 * bytes, [=, this] {
      linear_backward_input<Device, float>(
          device_, {.d_in_bci = d_in, .d_out_bco = out, .weight_oi = weight, .BC = BC(), .I = I, .O = O});
      linear_backward_weight<Device, float>(
          device_,
          {.d_weight_oi = d_weight, .d_bias_o = d_bias, .d_out_bco = out, .in_bci = in, .BC = BC(), .I = I, .O = O});
    });
  }

  void layernorm() {
    const Index D = config_.channels, count = BC() * D;
    float *in = array(count), *out = array(count), *mean = array(BC()), *rstd = array(BC());
    float *weight = array(D), *bias = array(D), *d_weight = array(D), *d_bias = array(D), *d_in = array(count);
    time("layernorm", "forward", 8.0 * static_cast<double>(count), size(2 * count),
         [=, this] { layernorm_forward<Device, float>(device_, out, mean, rstd, in, weight, bias, BC(), D); });
    time("layernorm", "backward", 14.0 * static_cast<double>(count), size(4 * count), [=, this] {
      layernorm_backward<Device, float>(device_, {.d_in_bcd = d_in,
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
    float *in = array(count), *out = array(count), *d_in = array(count);
    time("gelu", "forward", 30.0 * static_cast<double>(count), size(2 * count),
         [=, this] { gelu_forward<Device, float>(device_, out, in, count, GeluForm::erf); });
    time("gelu", "backward", 45.0 * static_cast<double>(count), size(3 * count),
         [=, this] { gelu_backward<Device, float>(device_, d_in, out, in, count, GeluForm::erf); });
  }

  void dropout() {
    const Index count = BC() * config_.channels;
    float *in = array(count), *out = array(count), *residual = array(count);
    const Dropout settings{0.1, sites::embedding_dropout, &state_};
    time("dropout", "forward", 2.0 * static_cast<double>(count), size(3 * count),
         [=, this] { dropout_forward<Device, float>(device_, out, in, residual, settings, count); });
    time("dropout", "backward", static_cast<double>(count), size(2 * count),
         [=, this] { dropout_backward<Device, float>(device_, out, in, settings, count); });
  }

  void embedding() {
    const Index D = config_.channels, V = config_.vocabulary;
    float *out = array(BC() * D), *token = array(V * D), *position = array(C_ * D);
    std::vector<Token> tokens(static_cast<std::size_t>(BC()));
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<Token>(philox_word(1, i, 0, 0) % V);
    time("embedding", "forward", static_cast<double>(BC() * D), size(2 * BC() * D),
         [&, this] { embedding_forward<Device, float>(device_, out, tokens.data(), token, position, B_, C_, D); });
    time("embedding", "backward", 2.0 * static_cast<double>(BC() * D), size(2 * BC() * D),
         [&, this] { embedding_backward<Device, float>(device_, token, position, out, tokens.data(), B_, C_, D, V); });
  }

  void convolution() {
    if (!config_.conv_kernel) return;
    const CausalConvShape shape{B_, C_, config_.channels, config_.convolution_groups(), config_.conv_kernel};
    const Index count = BC() * shape.D, weights = shape.D * (shape.D / shape.groups) * shape.kernel;
    float *in = array(count), *out = array(count), *weight = array(weights), *d_weight = array(weights);
    float* d_in = array(count);
    const double flops = 2.0 * static_cast<double>(BC()) * static_cast<double>(weights);
    time("causal_conv", "forward", flops, size(2 * count + weights),
         [=, this] { causal_conv_forward<Device, float>(device_, out, in, weight, shape); });
    time("causal_conv", "backward", 2 * flops, size(4 * count + 2 * weights),
         [=, this] { causal_conv_backward<Device, float>(device_, d_in, d_weight, out, in, weight, shape); });
  }

  void additive() {
    const Index N = config_.heads, K = config_.channels / N, count = BC() * config_.channels;
    const AdditivePoolingShape shape{B_, C_, N, K, config_.windows().front()};
    float *x = array(count), *out = array(count), *logit = array(BC() * N), *max = array(BC() * N);
    float *sum = array(BC() * N), *pool = array(N * K), *d_x = array(count), *d_logit = array(BC() * N);
    float* d_pool = array(N * K);
    time("additive pooling", "forward", 5.0 * static_cast<double>(count), size(2 * count), [=, this] {
      additive_logits_forward<Device, float>(device_, logit, x, 0, pool, B_, C_, N, K);
      additive_pooling_forward<Device, float>(
          device_, {.out_bch = out, .max_bnc = max, .sum_bnc = sum, .logit_bnc = logit, .x_bch = x, .shape = shape});
    });
    time("additive pooling", "backward", 12.0 * static_cast<double>(count), size(4 * count), [=, this] {
      additive_pooling_backward<Device, float>(device_, {.d_x_bch = d_x,
                                                         .d_logit_bnc = d_logit,
                                                         .d_out_bch = out,
                                                         .out_bch = out,
                                                         .max_bnc = max,
                                                         .sum_bnc = sum,
                                                         .logit_bnc = logit,
                                                         .x_bch = x,
                                                         .shape = shape});
      additive_logits_backward<Device, float>(device_, {.d_x_bch = d_x,
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
    float *query = array(count), *key = array(count), *value = array(count), *out = array(count);
    float *lse = array(BC() * N), *d_query = array(count), *d_key = array(count), *d_value = array(count);
    const double pairs = static_cast<double>(BC() * N * K) * static_cast<double>(C_ + 1) / 2;
    time("dot_product core", "forward", 4 * pairs, size(4 * count), [=, this] {
      dot_product_attention_forward<Device, float>(device_, {.out_bch = out,
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
      dot_product_attention_backward<Device, float>(device_, {.d_query_bch = d_query,
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
    float *project = array(count), *key = array(count), *d_project = array(count), *metric = array(packed);
    float* d_metric = array(packed);
    const double flops = 2.0 * static_cast<double>(count * K);
    time("metric key", "forward", flops, size(2 * count), [=, this] {
      metric_key_forward<Device, float>(device_, key, project, metric, MetricForm::packed, BC(), N, K);
    });
    time("metric key", "backward", 2 * flops, size(4 * count), [=, this] {
      metric_key_backward<Device, float>(device_, d_project, d_metric, key, project, metric, MetricForm::packed, BC(),
                                         N, K);
    });
  }

  void cross_entropy() {
    const Index V = config_.vocabulary, count = BC() * V;
    float *logits = array(count), *d_logits = array(count), *loss = array(1), *loss_bc = array(BC());
    float* log_sum_exp = array(BC());
    Index rows = 0;
    std::vector<Token> targets(static_cast<std::size_t>(BC()), 0);
    time("cross_entropy", "forward", 20.0 * static_cast<double>(count), size(count), [&, this] {
      cross_entropy_forward<Device, float>(device_, {.loss = loss,
                                                     .loss_bc = loss_bc,
                                                     .log_sum_exp_bc = log_sum_exp,
                                                     .count = &rows,
                                                     .logits_bcv = logits,
                                                     .targets_bc = targets.data(),
                                                     .BC = BC(),
                                                     .V = V});
    });
    time("cross_entropy", "backward", 20.0 * static_cast<double>(count), size(2 * count), [&, this] {
      cross_entropy_backward<Device, float>(device_, {.d_logits_bcv = d_logits,
                                                      .logits_bcv = logits,
                                                      .log_sum_exp_bc = log_sum_exp,
                                                      .count = &rows,
                                                      .targets_bc = targets.data(),
                                                      .BC = BC(),
                                                      .V = V});
    });
  }

  void optimizer() {
    const Index count = model_memory(config_, {}).weights;
    float *weight = array(count), *first = array(count), *second = array(count), *d_weight = array(count);
    for (Index i = 0; i < count; ++i) second[i] = std::abs(second[i]);
    time("global_norm", "step", 2.0 * static_cast<double>(count), size(count),
         [=, this] { global_norm<Device, float>(device_, &state_, d_weight, 1, count); });
    time("adamw", "step", 15.0 * static_cast<double>(count), size(7 * count), [=, this] {
      adamw_update<Device, float>(device_, weight, nullptr, first, second, d_weight, AdamwSettings{}, &state_, count);
    });
    arrays_.clear();
  }

  Device& device_;
  const ModelConfig& config_;
  Index B_, C_;
  double seconds_;
  std::vector<Row>& rows_;
  StepState state_;
  std::vector<std::vector<float>> arrays_;
};

template <Isa isa>
void bench_layers(Index threads, const ModelConfig& config, Index batch, double seconds, Results& results) {
  CpuDevice<isa> device(threads);
  results.multiply_add_rate = multiply_add_rate(device);
  results.copy_rate = copy_rate(device, std::size_t{64} << 20);
  LayerBench<CpuDevice<isa>>(device, config, batch, seconds, results.layers).run();
}

// One row for the mixer of the configuration, or one for each kind of mixer when the configuration has just one.
void bench_steps(const DeviceChoice& device, const ModelConfig& config, const TrainingConfig& training, bool every_mixer,
                 double seconds, Results& results) {
  std::vector<std::string> mixers = {config.mixer};
  if (every_mixer) mixers = {"additive", "metric", "quadratic", "dot"};
  for (const std::string& mixer : mixers) {
    ModelConfig one = config;
    one.mixer = mixer;
    const NetworkExtent extent{training.batch, one.context, true, 0, device.threads};
    require_memory(model_memory(one, extent).total());
    const std::unique_ptr<Model> model = make_model(device, one, extent, training.dropout, training.type);
    results.device = model->device_name();
    model->write(Model::Arena::weights, initial_weights(parameter_table(one), one, training.init_std, training.seed));
    const Index tokens = training.batch * one.context;
    std::vector<Token> tokens_bc(static_cast<std::size_t>(tokens));
    for (std::size_t i = 0; i < tokens_bc.size(); ++i) {
      tokens_bc[i] = static_cast<Token>(philox_word(training.seed, i, 0, sites::batch) % one.vocabulary);
    }
    Index step = 0;
    const double milliseconds = median_milliseconds(
        4 * seconds, [&] { model->train_step(tokens_bc, tokens_bc, training, step++ % training.steps); });
    results.steps.push_back({mixer, milliseconds, static_cast<Index>(1e3 * static_cast<double>(tokens) / milliseconds),
                             training_flops(one, tokens)});
  }
}

void print(const Results& r) {
  std::printf("device: %s; measured peaks: %.1f GFLOP/s multiply-add, %.1f GB/s copy\n\n", r.device.c_str(),
              r.multiply_add_rate / 1e9, r.copy_rate / 1e9);
  std::printf("%-22s %10s %12s %10s %8s\n", "training step, mixer", "ms", "tokens/s", "GFLOP/s", "of peak");
  for (const StepRow& row : r.steps) {
    const double rate = row.flops / row.milliseconds * 1e3;
    std::printf("%-22s %10.3f %12lld %10.1f %7.1f%%\n", row.mixer.c_str(), row.milliseconds,
                static_cast<long long>(row.tokens_per_s), rate / 1e9, 100 * rate / r.multiply_add_rate);
  }
  std::printf("\n%-18s %-9s %10s %10s %8s %10s %8s\n", "layer", "pass", "ms", "GFLOP/s", "of peak", "GB/s", "of copy");
  for (const Row& row : r.layers) {
    const double flops = row.flops / row.milliseconds * 1e3, bytes = row.bytes / row.milliseconds * 1e3;
    std::printf("%-18s %-9s %10.4f %10.1f %7.1f%% %10.1f %7.1f%%\n", row.layer.c_str(), row.pass.c_str(),
                row.milliseconds, flops / 1e9, 100 * flops / r.multiply_add_rate, bytes / 1e9,
                100 * bytes / r.copy_rate);
  }
}

std::string json_of(const Results& r) {
  std::string json = "{\n  \"device\": \"" + r.device +
                     "\",\n  \"multiply_add_flops_per_s\": " + to_text(r.multiply_add_rate) +
                     ",\n  \"copy_bytes_per_s\": " + to_text(r.copy_rate) + ",\n  \"training\": [";
  const char* comma = "";
  for (const StepRow& row : r.steps) {
    json += std::string(comma) + "\n    {\"mixer\": \"" + row.mixer + "\", \"ms\": " + to_text(row.milliseconds) +
            ", \"tokens_per_s\": " + to_text(row.tokens_per_s) + ", \"flops\": " + to_text(row.flops) + "}";
    comma = ",";
  }
  json += "\n  ],\n  \"layers\": [";
  comma = "";
  for (const Row& row : r.layers) {
    json += std::string(comma) + "\n    {\"layer\": \"" + row.layer + "\", \"pass\": \"" + row.pass +
            "\", \"ms\": " + to_text(row.milliseconds) + ", \"flops\": " + to_text(row.flops) +
            ", \"bytes\": " + to_text(row.bytes) + "}";
    comma = ",";
  }
  return json + "\n  ]\n}\n";
}

int body(int argc, char** argv) {
  std::string preset = "tiny", json;
  DeviceChoice device;
  double seconds = 0.2;
  ModelConfig config;
  TrainingConfig training;
  if (const auto wanted = peek_flag(argc, argv, "preset")) {
    if (*wanted == "baby" || *wanted == "fastformer") preset = *wanted;
  }
  apply_preset(preset, config, training);
  config.vocabulary = 65;  // Tiny Shakespeare's
  Flags flags("bench", "Measures training and every layer beside this machine's peaks.");
  flags.choice("preset", preset, {"tiny", "baby", "fastformer"}, "sizes to measure at");
  flags.text("mixer", config.mixer, "LIST", "of the training step; without it every kind is measured");
  flags.integer("batch", training.batch, "SEQUENCES", "sequences a step", 1, largest_batch);
  flags.integer("context", config.context, "TOKENS", "length of a sequence", 1, largest_context);
  flags.real("dropout", training.dropout, "P", "dropout of the training step", {0, 1});
  flags.real("seconds", seconds, "S", "time for each measurement", {0, 3600});
  flags.text("json", json, "FILE", "write the results there as well");
  add_machine_flags(flags, device);
  flags.choice("type", training.type, {"float", "bf16"}, "number type; bf16 on GPU devices only");
  flags.seed("seed", training.seed, "of weights and tokens");
  if (const auto status = flags.parse(argc, argv)) return *status;
  config.check();

  Results results;
  bench_steps(device, config, training, !flags.given("mixer"), seconds, results);
  switch (best_isa()) {
#if defined(ABH_X86)
    case Isa::avx512:
      bench_layers<Isa::avx512>(device.threads, config, training.batch, seconds, results);
      break;
    case Isa::avx2:
      bench_layers<Isa::avx2>(device.threads, config, training.batch, seconds, results);
      break;
#endif
    default:
      bench_layers<Isa::baseline>(device.threads, config, training.batch, seconds, results);
  }
  print(results);
  if (!json.empty()) write_file_atomically(json, json_of(results));
  return 0;
}

}  // namespace
}  // namespace abh

int main(int argc, char** argv) { return abh::run_program("bench", argc, argv, abh::body); }
