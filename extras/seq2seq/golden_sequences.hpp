#pragma once

#include "apps/golden/golden_cases.hpp"
#include "extras/seq2seq/beam_search.hpp"

namespace abh {

// Everything about a network with an encoder that the shapes and names of its weights say.
template <class Device, class T>
ModelConfig GoldenCases<Device, T>::sequences_config() const {
  for (const char* key : {"heads", "encoder_layers", "decoder_layers"}) file_.setting(key);
  ModelConfig config = ModelConfig::from_metadata(file_.metadata(), file_.path());
  for (const auto& [key, layers] :
       {std::pair("encoder_layers", config.encoder_layers), std::pair("decoder_layers", config.decoder_layers)}) {
    if (layers < 1 || layers > largest_layers / 2) {
      file_.fail("metadata " + std::string(key) + ": expected 1 to " + std::to_string(largest_layers / 2) + ", found " +
                 std::to_string(layers));
    }
  }
  config.layers = config.encoder_layers + config.decoder_layers;
  if (!file_.has_setting("mixer")) config.mixer = "dot";
  const bool shared = config.embeddings == "shared";
  const Shape source = file_.shape(shared ? "weight.embedding.token_vd" : "weight.encoder.embedding.token_vd", 2);
  const Shape target = file_.shape(shared ? "weight.embedding.token_vd" : "weight.decoder.embedding.token_vd", 2);
  config.source_vocabulary = source[0];
  config.vocabulary = target[0];
  config.channels = target[1];
  config.source_context = file_.shape("input.source_bs", 2)[1];
  config.context = largest_context;
  if (config.has_position_table()) {
    config.source_context = file_.shape("weight.encoder.embedding.position_sd", 2)[0];
    config.context = file_.shape("weight.decoder.embedding.position_cd", 2)[0];
  }
  config.hidden_channels = file_.shape("weight.decoder.blocks.0.ffn.up_fd", 2)[0];
  config.head_channels = head_channels("weight.decoder.blocks.0.cross.query_hd", config.heads);
  config.attention_bias = false;
  for (const SafetensorsTensor& tensor : file_.tensors()) {
    config.attention_bias = config.attention_bias || tensor.name.ends_with(".query_bias_h");
  }
  check_model(config);
  return config;
}

// Teacher forcing: the decoder reads tokens and is asked for targets.
template <class Device, class T>
void GoldenCases<Device, T>::seq2seq() {
  const ModelConfig config = sequences_config();
  const double smoothing = file_.real_setting("label_smoothing", 0, 0, 1);
  const Shape source = file_.shape("input.source_bs", 2), tokens = file_.shape("input.tokens_bc", 2);
  const Index B = source[0], S = source[1], C = tokens[1], V = config.vocabulary;
  Network<Device, T> network(device_, config, {.B = B, .C = C, .training = true, .S = S});
  read_weights(network.weights().values(), network.parameters());
  const Array<Token> source_bs(device_,
                               file_.tokens("input.source_bs", source, 0, last_token(config.source_vocabulary), 0));
  const Array<Token> source_mask_bs = read_mask(B, S, "input.mask_bs");
  const Array<Token> tokens_bc(device_, file_.tokens("input.tokens_bc", {B, C}, 0, last_token(V), 0));
  const Pass pass{.B = B, .C = C, .S = S, .source_mask_bs = source_mask_bs.data()};
  DeviceBatch<T> batch{.token_bc = tokens_bc.data(), .source_bs = source_bs.data()};
  network.forward(batch, pass);
  give("output.logits_bcv", {B, C, V}, network.logits_bcv());
  give_activations([&](const Look& look) { network.look(look, pass); });
  if (!goes_back("input.targets_bc") && !file_.has("output.loss")) return;
  const Array<Token> targets_bc = read_targets(B, C, V);
  batch.target_r = targets_bc.data();
  give("output.loss", {}, network.loss(batch, smoothing, pass).mean);
  network.backward(batch, smoothing, pass);
  give_gradients(network.weights().gradients(), network.parameters());
}

// One source after the other, step by step.
template <class Device, class T>
void GoldenCases<Device, T>::beam_search() {
  const ModelConfig config = sequences_config();
  for (const char* key : {"beam", "length_penalty", "max_length", "begin_token", "end_token"}) file_.setting(key);
  const Index V = config.vocabulary, M = file_.integer_setting("beam", 1, 1, V);
  const BeamSettings settings{
      .width = M,
      .length_penalty = file_.real_setting("length_penalty", 0, -1e3, 1e3),
      .most_tokens = file_.integer_setting("max_length", 1, 1, std::min<Index>(config.context, 1 << 16)),
      .begin = static_cast<Token>(file_.integer_setting("begin_token", 0, 0, last_token(V))),
      .end = static_cast<Token>(file_.integer_setting("end_token", 0, 0, last_token(V)))};
  const Shape source = file_.shape("input.source_bs", 2);
  const Index B = source[0], S = source[1], C = settings.most_tokens;
  Network<Device, T> network(device_, config, {.B = 1, .C = 1, .positions = C, .S = S, .hypotheses = M});
  read_weights(network.weights().values(), network.parameters());
  const Array<Token> source_bs(device_,
                               file_.tokens("input.source_bs", source, 0, last_token(config.source_vocabulary), 0));
  const Array<Token> mask_bs = read_mask(B, S, "input.mask_bs");
  Array<Token> token(device_, 1);
  std::vector<T> logits_v(static_cast<std::size_t>(V));
  std::vector<double> wide_logits_v;
  const auto next = [&](Token last, Index position, Index hypothesis) -> std::span<const double> {
    network.arenas().work_on(hypothesis);
    device_.copy_from_host(token.data(), &last, 1);
    device_.copy_to_host(logits_v.data(), network.step(token.data(), position), V);
    wide_logits_v.assign(logits_v.begin(), logits_v.end());
    return wide_logits_v;
  };
  const auto copy = [&](Index to, Index from) { network.arenas().copy_state(to, from); };
  std::vector<double> tokens_bmc(static_cast<std::size_t>(B * M * C), -1), score_bm, log_probability_bm;
  for (Index b = 0; b < B; ++b) {
    network.arenas().work_on(0);
    network.start({.source_bs = source_bs.data() + b * S},
                  {.B = 1, .C = 1, .S = S, .source_mask_bs = mask_bs.data() ? mask_bs.data() + b * S : nullptr});
    const std::vector<Hypothesis> found = abh::beam_search(settings, next, copy);
    for (Index m = 0; m < static_cast<Index>(found.size()); ++m) {
      const Hypothesis& hypothesis = found[static_cast<std::size_t>(m)];
      std::copy(hypothesis.tokens.begin(), hypothesis.tokens.end(), tokens_bmc.begin() + (b * M + m) * C);
      score_bm.push_back(hypothesis.score);
      log_probability_bm.push_back(hypothesis.log_probability);
    }
    if (static_cast<Index>(found.size()) < M)
      file_.fail("metadata beam: fewer than " + std::to_string(M) + " are found");
  }
  results_["output.tokens_bmc"] = {{B, M, C}, tokens_bmc};
  results_["output.score_bm"] = {{B, M}, score_bm};
  results_["output.log_probability_bm"] = {{B, M}, log_probability_bm};
}

}  // namespace abh
