#pragma once

#include "apps/golden/golden_cases.hpp"

namespace abh {

// Settings of the network that follow from the shapes and names of its weights.
template <class Device, class T>
ModelConfig GoldenCases<Device, T>::network_config(const Given& given) const {
  for (const char* key : {"layers", "mixer", "heads"}) file_.setting(key);
  ModelConfig config = ModelConfig::from_metadata(file_.metadata(), file_.path());
  const bool reads_patches = given.patches > 0;
  const std::string input = reads_patches ? "input.image_bgyx" : "input.tokens_bc";
  if (reads_patches) {
    config.vocabulary = 0;
    config.patch_inputs = given.patch_inputs;
    config.channels = file_.shape("weight.embedding.patch_di", 2)[0];
  } else {
    const Shape token = file_.shape("weight.embedding.token_vd", 2);
    config.vocabulary = token[0];
    config.channels = token[1];
  }
  const std::string position = "weight.embedding.position_cd";
  const bool has_table = file_.has(position);
  if (!file_.has_setting("positions")) config.positions = has_table ? "learned" : "none";
  if (has_table != config.has_position_table()) {
    file_.fail("metadata positions is " + config.positions + ": expected " +
               (has_table ? "learned, with " : "another, without ") + position);
  }
  if (given.classes > 0) {
    config.classes = given.classes;
    config.class_pooling = given.class_pooling;
  }
  const Index C = (reads_patches ? given.patches : file_.shape(input, 2)[1]) + (config.has_cls() ? 1 : 0);
  config.context = has_table ? file_.shape(position, 2)[0] : C;
  if (C > config.context) {
    file_.fail(input + " has " + std::to_string(C) + " positions, expected at most the " +
               std::to_string(config.context) + " of embedding.position_cd");
  }
  config.hidden_channels = file_.shape("weight.blocks.0.ffn.up_fd", 2)[0];
  config.head_channels = 0;
  config.attention_bias = false;
  const std::vector<MixerProperties> mixers = checked_mixers(config);
  config.extras.each([&](const auto& feature) {
    if (!mixers.front().takes(feature.option)) return;
    for (const std::string& key : words_in(feature.golden_keys)) file_.setting(key.c_str());
  });
  for (std::size_t layer = 0; layer < mixers.size(); ++layer) {
    if (!mixers[layer].head_projection) continue;
    const std::string prefix = "weight.blocks." + std::to_string(layer) + ".mixer.";
    config.head_channels = head_channels(prefix + mixers[layer].head_projection, config.heads);
    config.attention_bias = config.attention_bias || has_attention_bias(prefix);
  }
  // A window of at least the sequence length is the same as no window, for any length of the position table.
  std::string windows;
  for (const Index window : config.windows()) {
    windows += (windows.empty() ? "" : ",") + std::to_string(window < C ? window : 0);
  }
  config.window = windows;
  check_model(config);
  return config;
}

// Checks `layers` first, because the list of mixers has this length.
template <class Device, class T>
std::vector<MixerProperties> GoldenCases<Device, T>::checked_mixers(const ModelConfig& config) const {
  if (config.layers < 1 || config.layers > largest_layers) {
    file_.fail("metadata layers: expected 1 to " + std::to_string(largest_layers) + ", found " +
               std::to_string(config.layers));
  }
  return mixer_properties(config);
}

// chunk, truncated: see NetworkCapacity.
template <class Device, class T>
void GoldenCases<Device, T>::language_model(const ModelConfig& config, Index chunk, bool truncated) {
  check_training(config, {.chunk = chunk, .truncated = truncated});
  const double smoothing = file_.real_setting("label_smoothing", 0, 0, 1);
  const Shape tokens = file_.shape("input.tokens_bc", 2);
  const Index B = tokens[0], C = tokens[1], V = config.vocabulary;
  Network<Device, T> network(device_, config,
                             {.B = B, .C = C, .training = true, .chunk = chunk, .truncated = truncated});
  read_weights(network.weights().values(), network.parameters());
  GoldenArray<Device, Token> tokens_bc(device_, file_.tokens("input.tokens_bc", tokens, 0, last_token(V), 0));
  GoldenArray<Device, Token> mask_bc = read_mask(B, C);
  const bool learns = goes_back("input.targets_bc") || file_.has("output.loss");
  std::vector<Token> host_targets(static_cast<std::size_t>(B * C), ignored_target);
  if (learns) host_targets = file_.tokens("input.targets_bc", tokens, 0, last_token(V), ignored_target);
  const GoldenArray<Device, Token> targets_bc(device_, host_targets);
  const Index counted = B * C - std::count(host_targets.begin(), host_targets.end(), ignored_target);
  const GoldenArray<Device, Index> count(device_, std::vector<Index>{counted});
  const PassContext pass{.B = B, .C = C, .mask_bc = mask_bc.data(), .count = count.data()};

  std::vector<T> logits_bcv(static_cast<std::size_t>(B * C * V));
  double loss_sum = 0;
  const auto seen = [&](Index b, Index, const PassContext& part, const auto& loss) {
    if (!chunk) give_activations([&](const Inspector& inspector) { network.inspect(inspector, part); });
    const std::vector<T> rows = on_host<T>(device_, network.logits_bcv(), part.BC(), V, network.logit_stride());
    std::copy(rows.begin(), rows.end(), logits_bcv.begin() + (b * C + part.first_c) * V);
    Accum<T> mean = 0;
    Index of_part = 0;
    device_.copy_to_host(&mean, loss.mean, 1);
    device_.copy_to_host(&of_part, loss.count, 1);
    loss_sum += static_cast<double>(mean) * static_cast<double>(of_part);
  };
  if (learns) {
    differentiate(network, {tokens_bc.data(), targets_bc.data()}, smoothing, pass, seen);
    results_["output.loss"] = {{}, {counted > 0 ? loss_sum / static_cast<double>(counted) : 0}};
    give_gradients(network.weights().gradients(), network.parameters());
  } else {
    compute_losses(network, {tokens_bc.data(), targets_bc.data()}, smoothing, pass, seen);
  }
  results_["output.logits_bcv"] = {{B, C, V}, std::vector<double>(logits_bcv.begin(), logits_bcv.end())};
}

}  // namespace abh
