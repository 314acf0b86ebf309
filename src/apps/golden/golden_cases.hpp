#pragma once

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "apps/golden/golden.hpp"
#include "base/text.hpp"
#include "cases/cross_entropy.hpp"
#include "cases/device_arrays.hpp"
#include "cases/gelu.hpp"
#include "cases/layernorm.hpp"
#include "cases/linear.hpp"
#include "cases/pooling.hpp"
#include "device/memory.hpp"
#include "extras/kernel_regression/kernel_regression_case.hpp"
#include "extras/seq2seq/cross.hpp"
#include "network/mixers.hpp"
#include "network/network.hpp"
#include "runs/checkpoint.hpp"
#include "settings/config.hpp"
#include "settings/key_hints.hpp"

namespace abh {

// Runs the case of a golden file on a device, forward, and backward where the file has gradients. Shapes come from the
// file's tensors, settings from its metadata. In float, inputs and weights are rounded from the file's doubles.
//
//   GoldenResults results = GoldenCases<CpuDevice<Isa::baseline>, double>(device, file).run();
template <class Device, class T>
class GoldenCases {
 public:
  GoldenCases(Device& device, GoldenFile& file) : device_(device), file_(file) {}

  // Error, naming the file, for a case that does not exist, or a file that does not hold what its case needs.
  GoldenResults run() {
    struct Case {
      const char* name;
      void (GoldenCases::*run)();
      std::set<std::string> settings;
      bool is_network = false;
    };
    const Case cases[] = {
        {"linear", &GoldenCases::linear, {}},
        {"gelu", &GoldenCases::gelu, {"form"}},
        {"layernorm", &GoldenCases::layernorm, {}},
        {"cross_entropy", &GoldenCases::cross_entropy, {"label_smoothing"}},
        {"causal_conv", &GoldenCases::causal_conv, {"groups", "kernel"}},
        {"ffn", &GoldenCases::ffn, {"ffn_bias"}},
        {"additive_pooling", &GoldenCases::additive_pooling, {"window", "causal"}},
        {"additive_pooling_chunk", &GoldenCases::additive_pooling_chunk, {}},
        {"adaptive_span_attention", &GoldenCases::adaptive_span_attention, {"heads", "ramp", "penalty"}},
        {"cross_attention", &GoldenCases::cross_attention, {"heads"}},
        {"kernel_regression", &GoldenCases::kernel_regression, {"kernel", "leave_one_out"}},
        {"sparse_attention",
         &GoldenCases::sparse_attention,
         {"heads", "pattern", "stride", "summary", "window", "part"}},
        {"transformer_xl_attention", &GoldenCases::transformer_xl_attention, {"heads", "clamp"}},
        {"lsh_attention", &GoldenCases::lsh_attention, {"heads", "causal", "chunk", "duplicates", "within_bucket"}},
        {"language_model", &GoldenCases::language_model, {"label_smoothing"}, true},
        {"chunked_language_model",
         &GoldenCases::chunked_language_model,
         {"label_smoothing", "chunk", "truncated"},
         true},
        {"reversible_language_model", &GoldenCases::reversible_language_model, {"label_smoothing", "chunk"}, true},
        {"classifier", &GoldenCases::classifier, {"label_smoothing", "pooling"}, true},
        {"vision_transformer", &GoldenCases::vision_transformer, {"label_smoothing", "pooling", "patch"}, true},
        {"seq2seq",
         &GoldenCases::seq2seq,
         {"label_smoothing", "encoder_layers", "decoder_layers", "embeddings", "cross"},
         true},
        {"beam_search",
         &GoldenCases::beam_search,
         {"encoder_layers", "decoder_layers", "embeddings", "cross", "beam", "length_penalty", "max_length",
          "begin_token", "end_token"},
         true},
    };
    const std::string& wanted = file_.setting("case");
    std::string known;
    for (const Case& each : cases) {
      if (wanted == each.name) {
        require_settings(each.settings, each.is_network);
        (this->*each.run)();
        file_.require_all_taken();
        return std::move(results_);
      }
      known += std::string(known.empty() ? "" : ", ") + each.name;
    }
    for (const MixerProperties& properties : Mixers::properties) {
      if (!properties.golden_case) continue;
      if (wanted == properties.golden_case) {
        const bool of_memory = wanted == BahdanauMixer::properties.golden_case && file_.has("input.memory_bse");
        require_settings(of_memory ? std::set<std::string>{"heads"} : settings_of(properties), false);
        of_memory ? bahdanau_attention_of_memory() : mixer(properties);
        file_.require_all_taken();
        return std::move(results_);
      }
      known += std::string(", ") + properties.golden_case;
    }
    file_.fail("metadata case: expected one of " + known + ", found \"" + wanted + "\"");
  }

 private:
  using Shape = std::vector<Index>;

  // The metadata that the block of a mixer takes.
  static std::set<std::string> settings_of(const MixerProperties& properties) {
    std::set<std::string> keys = {"heads", "causal", "positions", "alibi_slopes"};
    if (properties.has_window) keys.insert("window");
    if (properties.has_products) keys.insert({"values", "projection", "skip"});
    if (properties.has_rescale) keys.insert("rescale");
    if (properties.has_normed_values) keys.insert("normed_values");
    if (properties.has_focus) keys.insert("focus");
    return keys;
  }

  // A key that a case passed over might stand for other numbers than those of the file. Where it says what holds anyway
  // it does not. A network takes every setting, and what else the metadata of a checkpoint says.
  void require_settings(const std::set<std::string>& own, bool is_network) const {
    static const std::set<std::string> of_files = {"case",  "source",      "tolerance_float", "format",
                                                   "crc32", "abh_version", "abh_crc32"};
    // Settings that say what kind of network it is: a case takes its own.
    static const std::set<std::string> of_kinds = {"classes",        "pooling",        "patch_inputs",
                                                   "encoder_layers", "decoder_layers", "source_vocabulary_size",
                                                   "source_context", "embeddings",     "cross"};
    const std::set<std::string> settings = ModelConfig::keys();
    const std::map<std::string, std::string> without = ModelConfig::from_metadata({}, file_.path()).metadata();
    for (const auto& [key, value] : file_.metadata()) {
      if (own.count(key) || of_files.count(key) || (is_network && keys_beside_settings().count(key))) continue;
      if (is_network && settings.count(key) && !of_kinds.count(key)) continue;
      if (settings.count(key) && ModelConfig::from_metadata({{key, value}}, file_.path()).metadata() == without)
        continue;
      file_.fail("metadata " + one_line(key) + ": the case has no use for it" + did_you_mean(key));
    }
  }

  // An array in device memory; its pointer is null when it has no elements.
  template <class Element>
  class Array {
   public:
    Array(Device& device, Index count)
        : memory_(device.memory(), static_cast<std::size_t>(count) * sizeof(Element)), count_(count) {
      if (count) device.set_zero(data(), count);
    }
    Array(Device& device, const std::vector<Element>& values) : Array(device, static_cast<Index>(values.size())) {
      if (count_) device.copy_from_host(data(), values.data(), count_);
    }
    Element* data() const { return memory_.template as<Element>(); }
    Index count() const { return count_; }

   private:
    DeviceMemory memory_;
    Index count_;
  };

  template <class Element>
  Array<Element> zeros(const Shape& shape) {
    return Array<Element>(device_, element_count(shape));
  }

  std::vector<T> rounded(const std::vector<double>& values) {
    std::vector<T> result;
    result.reserve(values.size());
    for (double value : values) result.push_back(static_cast<T>(value));
    return result;
  }

  Array<T> read(const std::string& name, const Shape& shape) {
    return Array<T>(device_, rounded(file_.reals(name, shape)));
  }
  // Whether a bias is left out, `name` beginning with "weight.": a gradient of it says that it is not.
  bool is_left_out(const std::string& name) const { return !file_.has(name) && !file_.has("grad_" + name); }
  Array<Token> read_mask(Index B, Index C, const std::string& name = "input.mask_bc") {
    if (!file_.has(name)) return Array<Token>(device_, 0);
    return Array<Token>(device_, file_.tokens(name, {B, C}, 0, 1, 0));
  }

  template <class Element>
  void give(const std::string& name, const Shape& shape, const Element* values) {
    std::vector<Element> host(static_cast<std::size_t>(element_count(shape)));
    device_.copy_to_host(host.data(), values, element_count(shape));
    results_[name] = {shape, std::vector<double>(host.begin(), host.end())};
  }

  // Keeps what a block or a network shows, if the file has any of it.
  template <class Shown>
  void give_activations(const Shown& show_to) {
    const bool wanted =
        std::any_of(file_.tensors().begin(), file_.tensors().end(),
                    [](const SafetensorsTensor& tensor) { return tensor.name.starts_with("activation."); });
    if (!wanted) return;
    Index number = 0;
    show_to([&](const std::string& name, const Shape& shape, const std::vector<double>& values) {
      results_["activation." + name] = {shape, values, ++number};
    });
  }

  // Whether the backward pass has to run, which starts from `upstream`.
  bool goes_back(const std::string& upstream) const { return file_.has(upstream) || file_.compares_gradients(); }

  // A tensor of the file that an array of a case takes or is compared with.
  struct Tensor {
    std::string name;
    Shape shape;
    bool heads_first = false;  // (b, n, c, k) in the file, in the array rows of all heads: (b, c, n, k)
  };
  using LayerArray = DeviceArray<Device, T>;

  // Numbers of shape (b, i, j, k) as (b, j, i, k).
  template <class Number>
  static std::vector<Number> swapped(const std::vector<Number>& numbers, Index I, Index J, Index K) {
    std::vector<Number> result(numbers.size());
    for (std::size_t at = 0; at < numbers.size(); ++at) {
      const Index index = static_cast<Index>(at), k = index % K, j = index / K % J, i = index / (K * J) % I;
      result[static_cast<std::size_t>(index - index % (I * J * K) + (j * I + i) * K + k)] = numbers[at];
    }
    return result;
  }

  void fill(LayerArray& array, const Tensor& tensor) {
    const Shape& s = tensor.shape;
    std::vector<T> values = rounded(file_.reals(tensor.name, s));
    if (tensor.heads_first) values = swapped(values, s[1], s[2], s[3]);
    device_.copy_from_host(array.template as<T>(), values.data(), array.count());
  }
  void give(const std::string& prefix, const Tensor& tensor, const LayerArray& array) {
    const Shape& s = tensor.shape;
    give(prefix + tensor.name, s, array.template as<T>());
    std::vector<double>& values = results_[prefix + tensor.name].values;
    if (tensor.heads_first) values = swapped(values, s[2], s[1], s[3]);
  }

  // One layer, forward, and backward where the file has gradients. inputs, outputs: the tensors of its slots.
  template <class Case>
  void run_layer(const Case& layer, const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs) {
    DeviceArrays<Device, T> a(device_, layer);
    for (std::size_t i = 0; i < a.in.size(); ++i) fill(a.in[i], inputs[i]);
    layer.forward(device_, a);
    for (std::size_t i = 0; i < a.out.size(); ++i) give("", outputs[i], a.out[i]);
    const std::vector<Slot> slots = layer.outputs();
    if (!file_.compares_gradients() && !file_.has("grad_" + outputs[0].name)) return;
    for (std::size_t i = 0; i < slots.size(); ++i) {
      if (slots[i].scale > 0) fill(a.d_out[i], {"grad_" + outputs[i].name, outputs[i].shape, outputs[i].heads_first});
    }
    layer.backward(device_, a);
    const std::vector<Slot> in_slots = layer.inputs();
    for (std::size_t i = 0; i < a.in.size(); ++i) {
      if (!in_slots[i].constant) give("grad_", inputs[i], a.d_in[i]);
    }
  }

  void linear() {
    const Shape x = file_.shape("input.x_bci", 3), weight = file_.shape("weight.weight_oi", 2);
    const LinearCase layer{.BC = x[0] * x[1], .I = x[2], .O = weight[0], .bias = !is_left_out("weight.bias_o")};
    run_layer(layer, {{"input.x_bci", x}, {"weight.weight_oi", {layer.O, layer.I}}, {"weight.bias_o", {layer.O}}},
              {{"output.y_bco", {x[0], x[1], layer.O}}});
  }

  void gelu() {
    const std::string& name = file_.setting("form");
    if (name != "erf" && name != "tanh") file_.fail("metadata form: expected erf or tanh, found \"" + name + "\"");
    const Shape x = file_.shape("input.x_bcd", 3);
    run_layer(GeluCase{.count = element_count(x), .form = name == "erf" ? GeluForm::erf : GeluForm::tanh},
              {{"input.x_bcd", x}}, {{"output.y_bcd", x}});
  }

  void layernorm() {
    const Shape x = file_.shape("input.x_bcd", 3), d = {x[2]};
    run_layer(LayernormCase{.BC = x[0] * x[1], .D = x[2]},
              {{"input.x_bcd", x}, {"weight.weight_d", d}, {"weight.bias_d", d}}, {{"output.y_bcd", x}});
  }

  void kernel_regression() {
    const std::string& kernel = file_.setting("kernel");
    if (kernel != "average" && kernel != "gaussian" && kernel != "parametric") {
      file_.fail("metadata kernel: expected average, gaussian or parametric, found \"" + kernel + "\"");
    }
    const KernelRegressionCase layer{.C = file_.shape("input.query_c", 1)[0],
                                     .S = file_.shape("input.key_s", 1)[0],
                                     .leave_one_out = file_.integer_setting("leave_one_out", 0, 0, 1) == 1,
                                     .learned = kernel == "parametric",
                                     .fixed_width = kernel == "average" ? 0.0 : 1.0};
    std::vector<Tensor> inputs = {
        {"input.query_c", {layer.C}}, {"input.key_s", {layer.S}}, {"input.value_s", {layer.S}}};
    if (layer.learned) inputs.push_back({"weight.width", {}});
    run_layer(layer, inputs, {{"output.y_c", {layer.C}}});
  }

  Array<Token> read_targets(Index B, Index C, Index V) {
    return Array<Token>(device_, file_.tokens("input.targets_bc", {B, C}, 0, last_token(V), ignored_target));
  }
  static Token last_token(Index V) {
    return static_cast<Token>(std::min<Index>(V - 1, std::numeric_limits<Token>::max()));
  }

  void cross_entropy() {
    const Shape x = file_.shape("input.logits_bcv", 3);
    const double smoothing = file_.real_setting("label_smoothing", 0, 0, 1);
    Array<Token> targets_bc = read_targets(x[0], x[1], x[2]);
    Array<Index> count = zeros<Index>({});
    run_layer(CrossEntropyCase{.BC = x[0] * x[1],
                               .V = x[2],
                               .targets_bc = targets_bc.data(),
                               .count = count.data(),
                               .label_smoothing = smoothing},
              {{"input.logits_bcv", x}}, {{"output.loss", {}}, {"output.loss_bc", {x[0], x[1]}}});
  }

  // The settings of one block on `D` channels.
  ModelConfig block_config(Index C, Index D) const {
    ModelConfig config = ModelConfig::from_metadata(file_.metadata(), file_.path());
    config.layers = 1;
    config.context = C;
    config.channels = D;
    config.vocabulary = 1;
    config.head_channels = config.hidden_channels = 0;
    if (!file_.has_setting("positions")) config.positions = "none";
    return config;
  }

  // K of an attention core whose projections have H rows.
  Index head_channels(const std::string& projection, Index heads) const {
    const Index H = file_.shape(projection, 2)[0];
    if (heads < 1 || H % heads != 0) {
      file_.fail("metadata heads: " + std::to_string(heads) + " does not divide the " + std::to_string(H) +
                 " rows of " + projection);
    }
    return H / heads;
  }

  // Biases may be given in part; those that are not are 0. Unless the metadata promises them.
  bool is_optional(const std::string& weight) const {
    const auto is_one_of = [&](std::initializer_list<const char*> biases) {
      return std::any_of(biases.begin(), biases.end(), [&](const char* bias) { return weight.ends_with(bias); });
    };
    return is_one_of({"query_bias_h", "key_bias_h", "value_bias_h", "output_bias_d"}) ||
           (!file_.has_setting("ffn_bias") && is_one_of({"up_bias_f", "down_bias_d"}));
  }
  // Whether one of the optional weights PREFIX* is there.
  bool has_any(const std::string& prefix, const std::vector<const char*>& weights) const {
    for (const char* weight : weights) {
      if (file_.has(prefix + weight)) return true;
    }
    return false;
  }
  bool has_attention_bias(const std::string& prefix) const {
    return has_any(prefix, {"query_bias_h", "key_bias_h", "value_bias_h", "output_bias_d"});
  }

  // Fills the arena of a block's or network's weights by name.
  void read_weights(T* weights, const std::vector<Parameter>& parameters) {
    for (const Parameter& parameter : parameters) {
      // A block by itself is given what has no gradient.
      const bool is_input = parameter.kind == Kind::constant && file_.has("input." + parameter.name);
      const std::string name = (is_input ? "input." : "weight.") + parameter.name;
      std::vector<T> values(static_cast<std::size_t>(parameter.count));
      if (!(is_optional(name) && is_left_out(name))) values = rounded(file_.reals(name, parameter.shape));
      device_.copy_from_host(weights + parameter.offset, values.data(), parameter.count);
    }
  }
  void give_gradients(const Accum<T>* gradients, const std::vector<Parameter>& parameters) {
    for (const Parameter& parameter : parameters) {
      if (parameter.kind == Kind::constant) continue;
      give("grad_weight." + parameter.name, parameter.shape, gradients + parameter.offset);
    }
  }

  // y_bcd = block(x_bcd) without its residual. make(layout, extent, options) makes the block.
  template <class Make>
  void run_block(const ModelConfig& config, bool norm, bool takes_mask, const Make& make) {
    check_model(config);
    const Shape x = file_.shape("input.x_bcd", 3);
    const Index B = x[0], C = x[1];
    const BlockExtent extent{B, C, 0};
    const BlockOptions options{.norm = norm, .residual = false, .causal = config.causal, .window = config.windows()[0]};
    Layout<T> measured;
    make(measured, extent, options);
    Array<T> weights(device_, measured.weight_count());
    Array<Accum<T>> gradients(device_, measured.weight_count());
    DeviceMemory activations(device_.memory(), measured.activation_bytes());
    Layout<T> layout(measured, weights.data(), gradients.data(), activations.as<std::byte>(), nullptr);
    const std::unique_ptr<Block<Device, T>> block = make(layout, extent, options);
    layout.write_constants(device_);
    read_weights(weights.data(), layout.parameters());

    Array<Token> mask_bc = takes_mask ? read_mask(B, C) : Array<Token>(device_, 0);
    const Pass pass{.B = B, .C = C, .mask_bc = mask_bc.data()};
    Array<T> x_bcd = read("input.x_bcd", x), y_bcd = zeros<T>(x);
    block->forward(device_, y_bcd.data(), x_bcd.data(), pass);
    give("output.y_bcd", x, y_bcd.data());
    give_activations([&](const Look& look) { block->look(device_, look, y_bcd.data(), pass); });
    if (!goes_back("grad_output.y_bcd")) return;
    Array<T> d_x_bcd = read("grad_output.y_bcd", x);
    block->backward(device_, d_x_bcd.data(), x_bcd.data(), pass);
    give("grad_input.x_bcd", x, d_x_bcd.data());
    give_gradients(gradients.data(), layout.parameters());
  }

  void causal_conv() {
    const Shape x = file_.shape("input.x_bcd", 3), weight = file_.shape("weight.weight_dgj", 3);
    ModelConfig config = block_config(x[1], x[2]);
    config.heads = 1;
    config.conv_groups = file_.integer_setting("groups", x[2] / weight[1], 1, x[2]);
    config.conv_kernel = file_.integer_setting("kernel", weight[2], 1, largest_conv_kernel);
    run_block(config, true, false, [&](Layout<T>& layout, const BlockExtent& extent, const BlockOptions& options) {
      return std::make_unique<ConvBlock<Device, T>>(layout, "", config, extent, options);
    });
  }

  void ffn() {
    const Shape x = file_.shape("input.x_bcd", 3);
    ModelConfig config = block_config(x[1], x[2]);
    config.heads = 1;
    config.hidden_channels = file_.shape("weight.up_fd", 2)[0];
    if (!file_.has_setting("ffn_bias")) config.ffn_bias = has_any("weight.", {"up_bias_f", "down_bias_d"});
    run_block(config, true, false, [&](Layout<T>& layout, const BlockExtent& extent, const BlockOptions& options) {
      return std::make_unique<FfnBlock<Device, T>>(layout, "", config, extent, options);
    });
  }

  // The recurrence alone.
  void additive_pooling() {
    const Shape x = file_.shape("input.x_bnck", 4);
    const Index B = x[0], N = x[1], C = x[2], K = x[3];
    ModelConfig config = block_config(C, K);
    config.heads = 1;
    check_model(config);
    const bool decays = file_.has("input.slope_n");
    if (decays && !config.causal) file_.fail("input.slope_n needs metadata causal 1: decay has one direction");
    Array<Token> mask_bc = read_mask(B, C);
    const PoolingCase layer{
        .shape = {B, C, N, K, config.windows()[0], config.causal}, .mask_bc = mask_bc.data(), .decays = decays};
    read_slopes(N);
    run_layer(layer, {{"input.a_bnc", {B, N, C}}, {"input.x_bnck", x, true}, {"input.slope_n", {N}}},
              {{"output.g_bnck", x, true}});
  }
  Array<T> read_slopes(Index N) {
    if (!file_.has("input.slope_n")) return Array<T>(device_, 0);
    const std::vector<double> slope_n = file_.reals("input.slope_n", {N});
    for (double slope : slope_n) {
      if (!(slope >= 0)) file_.fail("input.slope_n: expected numbers of at least 0, found " + std::to_string(slope));
    }
    return Array<T>(device_, rounded(slope_n));
  }

  // Dot-product attention without its norm, whose heads have spans.
  void adaptive_span_attention() {
    file_.setting("ramp");
    const Shape x = file_.shape("input.x_bcd", 3);
    ModelConfig config = block_config(x[1], x[2]);
    config.mixer = "dot";
    config.head_channels = head_channels("weight.query_hd", config.heads);
    config.span = x[1];
    ModelConfig priced = config;
    const double penalty = file_.real_setting("penalty", 0, 0, 1e6);
    if (file_.has_setting("penalty")) {
      double sum = 0;
      for (const double span : file_.reals("weight.span_n", {config.heads})) sum += span;
      results_["output.penalty"] = {{}, {penalty * sum / static_cast<double>(config.heads)}};
      if (goes_back("grad_output.y_bcd")) priced.penalty = penalty * file_.reals("grad_output.penalty", {})[0];
    }
    run_block(config, false, true, [&](Layout<T>& layout, const BlockExtent& extent, const BlockOptions& options) {
      return std::make_unique<DotBlock<Device, T>>(layout, "", priced, extent, options);
    });
  }

  // A chunk of a longer sequence. What was seen before it is like one position more, which has the logarithm of the sum
  // of weights for its logit and the average for its payload. What leaves it is what the last position has seen.
  void additive_pooling_chunk() {
    const Shape x = file_.shape("input.x_bnck", 4);
    const Index B = x[0], N = x[1], C = x[2], K = x[3], BN = B * N;
    const Shape bn = {B, N}, bnk = {B, N, K}, bnc = {B, N, C};
    // first_bnk, then x_bnck, as rows of all heads.
    const auto joined = [&](const std::vector<double>& first, const std::vector<double>& rest) {
      return swapped(with_first(rounded(first), rounded(rest), BN, C * K, K), N, C + 1, K);
    };
    Array<T> slope_n = read_slopes(N);
    Array<T> logit(device_, with_first(rounded(file_.reals("input.zeta_bn", bn)),
                                       rounded(file_.reals("input.a_bnc", bnc)), BN, C, 1));
    Array<T> payload(device_, joined(file_.reals("input.average_bnk", bnk), file_.reals("input.x_bnck", x)));
    Array<T> out = zeros<T>({B, C + 1, N, K}), max = zeros<T>({B, N, C + 1}), sum = zeros<T>({B, N, C + 1});
    const PoolingInputs<T> in{.logit_bnc = logit.data(),
                              .x_bch = payload.data(),
                              .slope_n = slope_n.data(),
                              .shape = {.B = B, .C = C + 1, .N = N, .K = K}};
    pooling_forward<Device, T>(device_,
                               {.out_bch = out.data(), .max_bnc = max.data(), .sum_bnc = sum.data(), .in = in});
    const std::vector<double> out_bnck = heads_first(out, N, C + 1, K);
    std::vector<double> zeta_bn = places(to_host(max), BN, C + 1, C, 1);
    const std::vector<double> last_sum = places(to_host(sum), BN, C + 1, C, 1);
    for (std::size_t i = 0; i < zeta_bn.size(); ++i) zeta_bn[i] += std::log(last_sum[i]);
    results_["output.g_bnck"] = {x, places(out_bnck, BN, (C + 1) * K, K, C * K)};
    results_["output.zeta_bn"] = {bn, zeta_bn};
    results_["output.average_bnk"] = {bnk, places(out_bnck, BN, (C + 1) * K, C * K, K)};
    if (!goes_back("grad_output.g_bnck")) return;

    // The adjoints of what leaves join those of the last position.
    std::vector<double> d_g = file_.reals("grad_output.g_bnck", x);
    const std::vector<double> d_average = file_.reals("grad_output.average_bnk", bnk);
    const std::vector<double> d_zeta = file_.reals("grad_output.zeta_bn", bn);
    std::vector<double> d_lse_bnc(static_cast<std::size_t>(BN * (C + 1)));
    for (Index i = 0; i < BN; ++i) {
      for (Index k = 0; k < K; ++k) {
        d_g[static_cast<std::size_t>((i * C + C - 1) * K + k)] += d_average[static_cast<std::size_t>(i * K + k)];
      }
      d_lse_bnc[static_cast<std::size_t>(i * (C + 1) + C)] = d_zeta[static_cast<std::size_t>(i)];
    }
    Array<T> d_out(device_, joined(std::vector<double>(d_average.size()), d_g)), d_lse(device_, rounded(d_lse_bnc));
    Array<T> d_x = zeros<T>({B, C + 1, N, K}), d_logit = zeros<T>({B, N, C + 1});
    pooling_backward<Device, T>(device_, {.d_x_bch = d_x.data(),
                                          .d_logit_bnc = d_logit.data(),
                                          .d_out_bch = d_out.data(),
                                          .d_lse_bnc = d_lse.data(),
                                          .out_bch = out.data(),
                                          .max_bnc = max.data(),
                                          .sum_bnc = sum.data(),
                                          .in = in});
    const std::vector<double> d_x_bnck = heads_first(d_x, N, C + 1, K), d_logit_bnc = to_host(d_logit);
    results_["grad_input.x_bnck"] = {x, places(d_x_bnck, BN, (C + 1) * K, K, C * K)};
    results_["grad_input.average_bnk"] = {bnk, places(d_x_bnck, BN, (C + 1) * K, 0, K)};
    results_["grad_input.a_bnc"] = {bnc, places(d_logit_bnc, BN, C + 1, 1, C)};
    results_["grad_input.zeta_bn"] = {bn, places(d_logit_bnc, BN, C + 1, 0, 1)};
  }
  // Of every one of `rows` rows of `width` numbers those from `first` on, `count`.
  static std::vector<double> places(const std::vector<double>& numbers, Index rows, Index width, Index first,
                                    Index count) {
    std::vector<double> result;
    for (Index row = 0; row < rows; ++row) {
      const auto begin = numbers.begin() + row * width + first;
      result.insert(result.end(), begin, begin + count);
    }
    return result;
  }
  // Rows of `size` numbers and then `width`.
  static std::vector<T> with_first(const std::vector<T>& first, const std::vector<T>& rest, Index rows, Index width,
                                   Index size) {
    std::vector<T> result;
    for (Index row = 0; row < rows; ++row) {
      result.insert(result.end(), first.begin() + row * size, first.begin() + (row + 1) * size);
      result.insert(result.end(), rest.begin() + row * width, rest.begin() + (row + 1) * width);
    }
    return result;
  }
  std::vector<double> to_host(Array<T>& array) {
    std::vector<T> host(static_cast<std::size_t>(array.count()));
    device_.copy_to_host(host.data(), array.data(), array.count());
    return {host.begin(), host.end()};
  }
  // Rows of all heads, (b, c, n, k), as (b, n, c, k).
  std::vector<double> heads_first(Array<T>& array, Index N, Index C, Index K) {
    return swapped(to_host(array), C, N, K);
  }

  // The block of one mixer.
  void mixer(const MixerProperties& properties) {
    file_.setting("heads");
    const Shape x = file_.shape("input.x_bcd", 3);
    ModelConfig config = block_config(x[1], x[2]);
    config.mixer = properties.name;
    check_positions(properties);
    if (properties.head_projection) {
      config.head_channels = head_channels(std::string("weight.") + properties.head_projection, config.heads);
    }
    config.attention_bias = has_attention_bias("weight.");
    check_model(config);
    run_block(config, properties.golden_norm, true,
              [&](Layout<T>& layout, const BlockExtent& extent, const BlockOptions& options) {
                return Mixers::make<Device, T>(mixers_of(config)[0], layout, "", config, extent, options);
              });
  }

  // The value of a key of the metadata, one of so many words.
  std::string choice(const char* key, const std::string& found, const std::vector<std::string>& choices) const {
    if (std::find(choices.begin(), choices.end(), found) != choices.end()) return found;
    file_.fail(std::string("metadata ") + key + ": expected " + listed(choices) + ", found \"" + one_line(found) +
               "\"");
  }

  // The block `lsh`, with its rotations given, and rules that the mixer does not have.
  void lsh_attention() {
    for (const char* key : {"heads", "chunk"}) file_.setting(key);
    const Shape x = file_.shape("input.x_bcd", 3), rotations = file_.shape("input.rotations_nukr", 4);
    ModelConfig config = block_config(x[1], x[2]);
    config.mixer = LshMixer::properties.name;
    config.head_channels = head_channels("weight.project_hd", config.heads);
    config.lsh_rounds = rotations[1];
    config.lsh_buckets = 2 * rotations[3];
    config.lsh_piece = file_.integer_setting("chunk", 1, 1, largest_context);
    const std::string duplicates = file_.has_setting("duplicates") ? file_.setting("duplicates") : "corrected";
    const LshRules rules{.counted = choice("duplicates", duplicates, {"corrected", "counted"}) == "counted",
                         .within_bucket = file_.integer_setting("within_bucket", 0, 0, 1) == 1};
    run_block(config, false, false, [&](Layout<T>& layout, const BlockExtent& extent, const BlockOptions& options) {
      return std::make_unique<LshBlock<Device, T>>(layout, "", config, extent, options, rules);
    });
  }

  // The block `dot` with a pattern. A window is the first part of a strided one, and parts are those of layers 0 and 1.
  void sparse_attention() {
    const auto positions = [&](const char* key, Index most) {
      file_.setting(key);
      return file_.integer_setting(key, 1, 1, most);
    };
    file_.setting("heads");
    const Shape x = file_.shape("input.x_bcd", 3);
    ModelConfig config = block_config(x[1], x[2]);
    config.mixer = DotMixer::properties.name;
    config.head_channels = head_channels("weight.query_hd", config.heads);
    config.window = "0";
    const bool has_part = file_.has_setting("part");
    std::string part = "first";
    if (choice("pattern", file_.setting("pattern"), {"strided", "fixed", "window"}) == "window") {
      config.pattern = "strided";
      config.stride = positions("window", largest_context);
      for (const char* key : {"stride", "summary", "part"}) {
        if (file_.has_setting(key)) file_.fail(std::string("metadata ") + key + ": a window has none");
      }
    } else {
      config.stride = positions("stride", largest_context);
      if (config.pattern == "fixed") config.summary = positions("summary", config.stride);
      part = has_part ? choice("part", file_.setting("part"), {"merged", "first", "second", "heads"}) : "merged";
    }
    const bool is_alone = part == "first" || part == "second";
    config.part = is_alone ? "layers" : part;
    run_block(config, false, true, [&](Layout<T>& layout, const BlockExtent& extent, const BlockOptions& options) {
      BlockOptions of_layer = options;
      of_layer.layer = part == "second" ? 1 : 0;
      return std::make_unique<DotBlock<Device, T>>(layout, "", config, extent, of_layer);
    });
  }

  // The positions that a block by itself can have.
  void check_positions(const MixerProperties& properties) {
    if (!file_.has_setting("positions")) return;
    const std::string& positions = file_.setting("positions");
    if (positions == "none" || positions == "alibi" || (positions == "rotary" && properties.has_turns)) return;
    file_.fail(std::string("metadata positions: expected none") + (properties.has_turns ? ", rotary" : "") +
               " or alibi, found \"" + positions + "\"");
  }

  // In golden_networks.hpp and golden_sequences.hpp, which whoever runs cases includes: what a whole network computes,
  // and blocks that read a memory.
  void cross_attention();
  void bahdanau_attention_of_memory();
  void transformer_xl_attention();
  template <class MemoryBlock>
  void block_of_memory(ModelConfig config);
  // The input of a network: tokens, or so many patches of so many numbers.
  struct Given {
    bool classifier = false;
    std::string otherwise = "mean";  // what a classifier reads where the metadata do not say
    Index patches = 0, patch_inputs = 0;
  };
  ModelConfig network_config() const { return network_config(Given{}); }
  ModelConfig network_config(const Given& given) const;
  void read_head(ModelConfig& config, const std::string& otherwise) const;
  std::vector<MixerProperties> checked_mixers(const ModelConfig& config) const;
  void language_model() { language_model(network_config(), 0, false); }
  void chunked_language_model();
  void reversible_language_model();
  void language_model(const ModelConfig& config, Index chunk, bool truncated);
  void classifier();
  void vision_transformer();
  ModelConfig sequences_config() const;
  void seq2seq();
  void beam_search();
  void classify(const ModelConfig& config, Index B, Index C, const std::vector<Token>& tokens,
                const std::vector<Token>& mask, const std::vector<double>& patches);

  Device& device_;
  GoldenFile& file_;
  GoldenResults results_;
};

}  // namespace abh
