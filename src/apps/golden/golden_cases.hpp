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

#include "apps/feature_cases.hpp"
#include "apps/golden/golden.hpp"
#include "base/text.hpp"
#include "cases/cross_entropy.hpp"
#include "cases/device_arrays.hpp"
#include "cases/gelu.hpp"
#include "cases/layernorm.hpp"
#include "cases/linear.hpp"
#include "cases/pooling.hpp"
#include "device/memory.hpp"
#include "network/mixers.hpp"
#include "network/network.hpp"
#include "runs/checkpoint.hpp"
#include "settings/config.hpp"
#include "settings/key_hints.hpp"

namespace abh {

// Runs the case of a golden file on a device: forward, and backward if the file has gradients. The tensors of the file
// determine the shapes, its metadata the settings. In float, inputs and weights are the rounded doubles of the file.
//
//   GoldenResults results = GoldenCases<CpuDevice<Isa::baseline>, double>(device, file).run();
//
// The cases of features (apps/feature_cases.hpp) call the members of this class.
template <class Device, class T>
class GoldenCases {
 public:
  GoldenCases(Device& device, GoldenFile& file) : device_(device), file_(file) {}

  // A case: its name in the metadata, its function, and the metadata keys that it reads. for_file: selects files if
  // several cases have this name; null: all files.
  struct Case {
    using Golden = GoldenCases;
    const char* name;
    void (*run)(GoldenCases&);
    std::set<std::string> settings;
    bool is_network = false;
    bool (*for_file)(const GoldenFile&) = nullptr;
  };

  // Public for the cases of features, like all members below.
  Device& device() const { return device_; }
  GoldenFile& file() const { return file_; }
  GoldenResults& results() { return results_; }

  // Error, with the name of the file, for an unknown case, or for a file without the required tensors or settings.
  GoldenResults run() {
    std::vector<Case> cases = {
        {"linear", [](GoldenCases& g) { g.linear(); }, {}},
        {"gelu", [](GoldenCases& g) { g.gelu(); }, {"form"}},
        {"layernorm", [](GoldenCases& g) { g.layernorm(); }, {}},
        {"cross_entropy", [](GoldenCases& g) { g.cross_entropy(); }, {"label_smoothing"}},
        {"causal_conv", [](GoldenCases& g) { g.causal_conv(); }, {"groups", "kernel"}},
        {"ffn", [](GoldenCases& g) { g.ffn(); }, {"ffn_bias"}},
        {"additive_pooling", [](GoldenCases& g) { g.additive_pooling(); }, {"window", "causal"}},
        {"language_model",
         [](GoldenCases& g) { g.language_model(g.network_config(), 0, false); },
         {"label_smoothing"},
         true},
    };
    FeatureCases::add_golden(cases);
    const std::string& wanted = file_.setting("case");
    require_features({{"case", wanted}}, {}, file_.path());
    std::string known;
    for (const Case& each : cases) {
      if (wanted == each.name && (!each.for_file || each.for_file(file_))) {
        require_settings(each.settings, each.is_network);
        each.run(*this);
        file_.require_all_taken();
        return std::move(results_);
      }
      known += std::string(known.empty() ? "" : ", ") + each.name;
    }
    for (const MixerProperties& properties : Mixers::properties) {
      if (!properties.golden_case) continue;
      if (wanted == properties.golden_case) {
        require_settings(settings_of(properties), false);
        mixer(properties);
        file_.require_all_taken();
        return std::move(results_);
      }
      known += std::string(", ") + properties.golden_case;
    }
    file_.fail("metadata case: expected one of " + known + ", found \"" + wanted + "\"");
  }

  using Shape = GoldenShape;

  // Metadata keys that the block of a mixer reads.
  static std::set<std::string> settings_of(const MixerProperties& properties) {
    std::set<std::string> keys = {"heads", "causal", "positions", "alibi_slopes"};
    if (properties.has_window) keys.insert("window");
    if (properties.has_products) keys.insert({"values", "projection", "skip"});
    if (properties.takes("rescale")) keys.insert("rescale");
    if (properties.takes("normed-values")) keys.insert("normed_values");
    if (properties.takes("leap-focus")) keys.insert("focus");
    return keys;
  }

  // Error for a metadata key that the case does not read, unless its value is the default. A network reads every
  // setting, and the other metadata of a checkpoint.
  void require_settings(const std::set<std::string>& own, bool is_network) const {
    static const std::set<std::string> of_files = {"case",  "source",      "tolerance_float", "format",
                                                   "crc32", "abh_version", "abh_crc32"};
    // Settings that select the kind of the network; a case reads only its own.
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
      file_.fail("metadata " + one_line(key) + ": the case does not use it" + did_you_mean(key));
    }
  }

  template <class Element>
  GoldenArray<Device, Element> zeros(const Shape& shape) {
    return GoldenArray<Device, Element>(device_, element_count(shape));
  }

  std::vector<T> rounded(const std::vector<double>& values) {
    std::vector<T> result;
    result.reserve(values.size());
    for (double value : values) result.push_back(static_cast<T>(value));
    return result;
  }

  GoldenArray<Device, T> read(const std::string& name, const Shape& shape) {
    return GoldenArray<Device, T>(device_, rounded(file_.reals(name, shape)));
  }
  // True if the file has neither the bias nor its gradient. name: begins with "weight.".
  bool is_left_out(const std::string& name) const { return !file_.has(name) && !file_.has("grad_" + name); }
  GoldenArray<Device, Token> read_mask(Index B, Index C, const std::string& name = "input.mask_bc") {
    if (!file_.has(name)) return GoldenArray<Device, Token>(device_, 0);
    return GoldenArray<Device, Token>(device_, file_.tokens(name, {B, C}, 0, 1, 0));
  }

  template <class Element>
  void give(const std::string& name, const Shape& shape, const Element* values) {
    std::vector<Element> host(static_cast<std::size_t>(element_count(shape)));
    device_.copy_to_host(host.data(), values, element_count(shape));
    results_[name] = {shape, std::vector<double>(host.begin(), host.end())};
  }
  // Rows of the last extent, `stride` apart.
  template <class Element>
  void give_rows(const std::string& name, const Shape& shape, const Element* values, Index stride) {
    const Index width = shape.back();
    results_[name] = {shape, on_host<double>(device_, values, element_count(shape) / width, width, stride)};
  }

  // Keeps the activations that `inspect` reports, if the file has activations.
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

  // True if the backward pass must run. upstream: the tensor with the upstream gradient.
  bool goes_back(const std::string& upstream) const { return file_.has(upstream) || file_.compares_gradients(); }

  using LayerArray = DeviceArray<Device, T>;

  // Transposes numbers of shape (b, i, j, k) to (b, j, i, k).
  template <class Number>
  static std::vector<Number> swapped(const std::vector<Number>& numbers, Index I, Index J, Index K) {
    std::vector<Number> result(numbers.size());
    for (std::size_t at = 0; at < numbers.size(); ++at) {
      const Index index = static_cast<Index>(at), k = index % K, j = index / K % J, i = index / (K * J) % I;
      result[static_cast<std::size_t>(index - index % (I * J * K) + (j * I + i) * K + k)] = numbers[at];
    }
    return result;
  }

  void fill(LayerArray& array, const GoldenTensor& tensor) {
    const Shape& s = tensor.shape;
    std::vector<T> values = rounded(file_.reals(tensor.name, s));
    if (tensor.heads_first) values = swapped(values, s[1], s[2], s[3]);
    device_.copy_from_host(array.template as<T>(), values.data(), array.count());
  }
  void give(const std::string& prefix, const GoldenTensor& tensor, const LayerArray& array) {
    const Shape& s = tensor.shape;
    give(prefix + tensor.name, s, array.template as<T>());
    std::vector<double>& values = results_[prefix + tensor.name].values;
    if (tensor.heads_first) values = swapped(values, s[2], s[1], s[3]);
  }

  // Runs one layer forward, and backward if the file has gradients. inputs, outputs: tensors of the specs of the layer.
  template <class Case>
  void run_layer(const Case& layer, const std::vector<GoldenTensor>& inputs, const std::vector<GoldenTensor>& outputs) {
    DeviceArrays<Device, T> a(device_, layer);
    for (std::size_t i = 0; i < a.in.size(); ++i) fill(a.in[i], inputs[i]);
    layer.forward(device_, a);
    for (std::size_t i = 0; i < a.out.size(); ++i) give("", outputs[i], a.out[i]);
    const std::vector<TensorSpec> specs = layer.outputs();
    if (!file_.compares_gradients() && !file_.has("grad_" + outputs[0].name)) return;
    for (std::size_t i = 0; i < specs.size(); ++i) {
      if (specs[i].scale > 0) fill(a.d_out[i], {"grad_" + outputs[i].name, outputs[i].shape, outputs[i].heads_first});
    }
    layer.backward(device_, a);
    const std::vector<TensorSpec> in_slots = layer.inputs();
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

  GoldenArray<Device, Token> read_targets(Index B, Index C, Index V) {
    return GoldenArray<Device, Token>(device_,
                                      file_.tokens("input.targets_bc", {B, C}, 0, last_token(V), ignored_target));
  }
  static Token last_token(Index V) {
    return static_cast<Token>(std::min<Index>(V - 1, std::numeric_limits<Token>::max()));
  }

  void cross_entropy() {
    const Shape x = file_.shape("input.logits_bcv", 3);
    const double smoothing = file_.real_setting("label_smoothing", 0, 0, 1);
    GoldenArray<Device, Token> targets_bc = read_targets(x[0], x[1], x[2]);
    GoldenArray<Device, Index> count = zeros<Index>({});
    run_layer(CrossEntropyCase{.BC = x[0] * x[1],
                               .V = x[2],
                               .targets_bc = targets_bc.data(),
                               .count = count.data(),
                               .label_smoothing = smoothing},
              {{"input.logits_bcv", x}}, {{"output.loss", {}}, {"output.loss_bc", {x[0], x[1]}}});
  }

  // Settings of a single block with `D` channels.
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

  // K of attention whose projections have H rows.
  Index head_channels(const std::string& projection, Index heads) const {
    const Index H = file_.shape(projection, 2)[0];
    if (heads < 1 || H % heads != 0) {
      file_.fail("metadata heads: " + std::to_string(heads) + " does not divide the " + std::to_string(H) +
                 " rows of " + projection);
    }
    return H / heads;
  }

  // A file may contain some of the biases; missing biases are 0, unless the metadata requires them.
  bool is_optional(const std::string& weight) const {
    const auto is_one_of = [&](std::initializer_list<const char*> biases) {
      return std::any_of(biases.begin(), biases.end(), [&](const char* bias) { return weight.ends_with(bias); });
    };
    return is_one_of({"query_bias_h", "key_bias_h", "value_bias_h", "output_bias_d"}) ||
           (!file_.has_setting("ffn_bias") && is_one_of({"up_bias_f", "down_bias_d"}));
  }
  // True if the file has one of the optional weights PREFIX*.
  bool has_any(const std::string& prefix, const std::vector<const char*>& weights) const {
    for (const char* weight : weights) {
      if (file_.has(prefix + weight)) return true;
    }
    return false;
  }
  bool has_attention_bias(const std::string& prefix) const {
    return has_any(prefix, {"query_bias_h", "key_bias_h", "value_bias_h", "output_bias_d"});
  }

  // Fills the weight arena of a block or a network by name.
  void read_weights(T* weights, const std::vector<Parameter>& parameters) {
    for (const Parameter& parameter : parameters) {
      // For a single block, a constant without a gradient is an input.
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

  // y_bcd = block(x_bcd) without the residual. make(layout, extent, options) constructs the block.
  template <class Make>
  void run_block(const ModelConfig& config, bool norm, bool takes_mask, const Make& make) {
    check_model(config);
    const Shape x = file_.shape("input.x_bcd", 3);
    const Index B = x[0], C = x[1];
    const BlockCapacity capacity{B, C, 0};
    const BlockOptions options{.norm = norm, .residual = false, .causal = config.causal, .window = config.windows()[0]};
    Layout<T> measured;
    make(measured, capacity, options);
    GoldenArray<Device, T> weights(device_, measured.weight_count());
    GoldenArray<Device, Accum<T>> gradients(device_, measured.weight_count());
    DeviceMemory activations(device_.memory(), measured.activation_bytes());
    Layout<T> layout(measured, weights.data(), gradients.data(), activations.as<std::byte>(), nullptr);
    const std::unique_ptr<Block<Device, T>> block = make(layout, capacity, options);
    layout.write_constants(device_);
    read_weights(weights.data(), layout.parameters());

    GoldenArray<Device, Token> mask_bc = takes_mask ? read_mask(B, C) : GoldenArray<Device, Token>(device_, 0);
    const PassContext pass{.B = B, .C = C, .mask_bc = mask_bc.data()};
    GoldenArray<Device, T> x_bcd = read("input.x_bcd", x), y_bcd = zeros<T>(x);
    block->forward(device_, y_bcd.data(), x_bcd.data(), pass);
    give("output.y_bcd", x, y_bcd.data());
    give_activations([&](const Inspector& inspector) { block->inspect(device_, inspector, y_bcd.data(), pass); });
    if (!goes_back("grad_output.y_bcd")) return;
    GoldenArray<Device, T> d_x_bcd = read("grad_output.y_bcd", x);
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
    run_block(config, true, false, [&](Layout<T>& layout, const BlockCapacity& capacity, const BlockOptions& options) {
      return std::make_unique<ConvBlock<Device, T>>(layout, "", config, capacity, options);
    });
  }

  void ffn() {
    const Shape x = file_.shape("input.x_bcd", 3);
    ModelConfig config = block_config(x[1], x[2]);
    config.heads = 1;
    config.hidden_channels = file_.shape("weight.up_fd", 2)[0];
    if (!file_.has_setting("ffn_bias")) config.ffn_bias = has_any("weight.", {"up_bias_f", "down_bias_d"});
    run_block(config, true, false, [&](Layout<T>& layout, const BlockCapacity& capacity, const BlockOptions& options) {
      return std::make_unique<FfnBlock<Device, T>>(layout, "", config, capacity, options);
    });
  }

  // The pooling layer alone.
  void additive_pooling() {
    const Shape x = file_.shape("input.x_bnck", 4);
    const Index B = x[0], N = x[1], C = x[2], K = x[3];
    ModelConfig config = block_config(C, K);
    config.heads = 1;
    check_model(config);
    const bool decays = file_.has("input.slope_n");
    if (decays && !config.causal) file_.fail("input.slope_n needs metadata causal 1: decay has one direction");
    GoldenArray<Device, Token> mask_bc = read_mask(B, C);
    const PoolingCase layer{
        .shape = {B, C, N, K, config.windows()[0], config.causal}, .mask_bc = mask_bc.data(), .decays = decays};
    read_slopes(N);
    run_layer(layer, {{"input.a_bnc", {B, N, C}}, {"input.x_bnck", x, true}, {"input.slope_n", {N}}},
              {{"output.g_bnck", x, true}});
  }
  GoldenArray<Device, T> read_slopes(Index N) {
    if (!file_.has("input.slope_n")) return GoldenArray<Device, T>(device_, 0);
    const std::vector<double> slope_n = file_.reals("input.slope_n", {N});
    for (double slope : slope_n) {
      if (!(slope >= 0)) file_.fail("input.slope_n: expected numbers of at least 0, found " + std::to_string(slope));
    }
    return GoldenArray<Device, T>(device_, rounded(slope_n));
  }

  // Runs the block of one mixer.
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
              [&](Layout<T>& layout, const BlockCapacity& capacity, const BlockOptions& options) {
                return Mixers::make<Device, T>(mixers_of(config)[0], layout, "", config, capacity, options);
              });
  }

  // Checks that the value of a metadata key is one of the choices.
  std::string choice(const char* key, const std::string& found, const std::vector<std::string>& choices) const {
    if (std::find(choices.begin(), choices.end(), found) != choices.end()) return found;
    file_.fail(std::string("metadata ") + key + ": expected " + listed(choices) + ", found \"" + one_line(found) +
               "\"");
  }

  // Checks the position encodings that a single block can have.
  void check_positions(const MixerProperties& properties) {
    if (!file_.has_setting("positions")) return;
    const std::string& positions = file_.setting("positions");
    if (positions == "none" || positions == "alibi" || (positions == "rotary" && properties.takes("rotary"))) return;
    file_.fail(std::string("metadata positions: expected none") + (properties.takes("rotary") ? ", rotary" : "") +
               " or alibi, found \"" + positions + "\"");
  }

  // Whole networks, defined in golden_networks.hpp. Given: values that a feature has read from the file: classes, or
  // the number of patches and the numbers per patch.
  struct Given {
    Index classes = 0;
    std::string class_pooling = "mean";
    Index patches = 0, patch_inputs = 0;
  };
  ModelConfig network_config() const { return network_config(Given{}); }
  ModelConfig network_config(const Given& given) const;
  std::vector<MixerProperties> checked_mixers(const ModelConfig& config) const;
  void language_model(const ModelConfig& config, Index chunk, bool truncated);

  Device& device_;
  GoldenFile& file_;
  GoldenResults results_;
};

}  // namespace abh
