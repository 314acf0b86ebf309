#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "apps/golden/golden.hpp"
#include "extras/bahdanau/additive_scores.hpp"
#include "extras/seq2seq/beam_search.hpp"
#include "extras/seq2seq/cross.hpp"
#include "extras/seq2seq/relu_case.hpp"
#include "network/network.hpp"

namespace abh {

// A block without norm and residual, with queries from x, and keys and values from a memory.
template <class CrossKind, class Device, class T>
void golden_block_of_memory(GoldenCases<Device, T>& g, ModelConfig config) {
  g.file().setting("heads");
  const GoldenShape x = g.file().shape("input.x_bcd", 3), memory = g.file().shape("input.memory_bse", 3);
  const Index B = x[0], C = x[1], S = memory[1];
  config.head_channels = g.head_channels("weight.query_hd", config.heads);
  config.check();
  Source<T> from;
  const auto make = [&](Layout<T>& layout) {
    return CrossKind(layout, "", config, memory[2], from, {.B = B, .C = C, .positions = 0, .S = S},
                     {.norm = false, .residual = false});
  };
  Layout<T> measured;
  make(measured);
  GoldenArray<Device, T> weights(g.device(), measured.weight_count());
  GoldenArray<Device, Accum<T>> gradients(g.device(), measured.weight_count());
  DeviceMemory activations(g.device().memory(), measured.activation_bytes());
  Layout<T> layout(measured, weights.data(), gradients.data(), activations.as<std::byte>(), nullptr);
  CrossKind block = make(layout);
  g.read_weights(weights.data(), layout.parameters());

  GoldenArray<Device, Token> mask_bs = g.read_mask(B, S, "input.mask_bs");
  GoldenArray<Device, T> x_bcd = g.read("input.x_bcd", x), y_bcd = g.template zeros<T>(x);
  GoldenArray<Device, T> memory_bse = g.read("input.memory_bse", {B, S, memory[2]}),
                         d_memory_bse = g.template zeros<T>(memory);
  from = {.memory_bse = memory_bse.data(), .S = S, .mask_bs = mask_bs.data(), .d_memory_bse = d_memory_bse.data()};
  const PassContext pass{.B = B, .C = C};
  block.forward(g.device(), y_bcd.data(), x_bcd.data(), pass);
  g.give("output.y_bcd", x, y_bcd.data());
  g.give_activations([&](const Inspector& inspector) { block.inspect(g.device(), inspector, y_bcd.data(), pass); });
  if (!g.goes_back("grad_output.y_bcd")) return;
  GoldenArray<Device, T> d_x_bcd = g.read("grad_output.y_bcd", x);
  block.backward(g.device(), d_x_bcd.data(), x_bcd.data(), pass);
  g.give("grad_input.x_bcd", x, d_x_bcd.data());
  g.give("grad_input.memory_bse", memory, d_memory_bse.data());
  g.give_gradients(gradients.data(), layout.parameters());
}

template <class Device, class T>
void golden_cross_attention(GoldenCases<Device, T>& g) {
  const GoldenShape x = g.file().shape("input.x_bcd", 3);
  ModelConfig config = g.block_config(x[1], x[2]);
  config.attention_bias = g.has_attention_bias("weight.");
  golden_block_of_memory<CrossBlock<Device, T>>(g, config);
}

template <class Device, class T>
void golden_bahdanau_of_memory(GoldenCases<Device, T>& g) {
  const GoldenShape x = g.file().shape("input.x_bcd", 3);
  golden_block_of_memory<CrossBlock<Device, T, AdditiveScores>>(g, g.block_config(x[1], x[2]));
}

// Configuration of a network with an encoder, derived from the shapes and names of its weights.
template <class Device, class T>
ModelConfig golden_sequences_config(GoldenCases<Device, T>& g) {
  for (const char* key : {"heads", "encoder_layers", "decoder_layers"}) g.file().setting(key);
  ModelConfig config = ModelConfig::from_metadata(g.file().metadata(), g.file().path());
  for (const auto& [key, layers] :
       {std::pair("encoder_layers", config.encoder_layers), std::pair("decoder_layers", config.decoder_layers)}) {
    if (layers < 1 || layers > largest_layers / 2) {
      g.file().fail("metadata " + std::string(key) + ": expected 1 to " + std::to_string(largest_layers / 2) +
                    ", found " + std::to_string(layers));
    }
  }
  config.layers = config.encoder_layers + config.decoder_layers;
  if (!g.file().has_setting("mixer")) config.mixer = "dot";
  const bool shared = config.embeddings == "shared";
  const GoldenShape source =
      g.file().shape(shared ? "weight.embedding.token_vd" : "weight.encoder.embedding.token_vd", 2);
  const GoldenShape target =
      g.file().shape(shared ? "weight.embedding.token_vd" : "weight.decoder.embedding.token_vd", 2);
  config.source_vocabulary = source[0];
  config.vocabulary = target[0];
  config.channels = target[1];
  config.source_context = g.file().shape("input.source_bs", 2)[1];
  config.context = largest_context;
  if (config.has_position_table()) {
    config.source_context = g.file().shape("weight.encoder.embedding.position_sd", 2)[0];
    config.context = g.file().shape("weight.decoder.embedding.position_cd", 2)[0];
  }
  config.hidden_channels = g.file().shape("weight.decoder.blocks.0.ffn.up_fd", 2)[0];
  config.head_channels = g.head_channels("weight.decoder.blocks.0.cross.query_hd", config.heads);
  config.attention_bias = false;
  for (const SafetensorsTensor& tensor : g.file().tensors()) {
    config.attention_bias = config.attention_bias || tensor.name.ends_with(".query_bias_h");
  }
  check_model(config);
  return config;
}

// Teacher forcing: the decoder reads the correct tokens; the loss uses the targets.
template <class Device, class T>
void golden_seq2seq(GoldenCases<Device, T>& g) {
  const ModelConfig config = golden_sequences_config(g);
  const double smoothing = g.file().real_setting("label_smoothing", 0, 0, 1);
  const GoldenShape source = g.file().shape("input.source_bs", 2), tokens = g.file().shape("input.tokens_bc", 2);
  const Index B = source[0], S = source[1], C = tokens[1], V = config.vocabulary;
  Network<Device, T> network(g.device(), config, {.B = B, .C = C, .training = true, .S = S});
  g.read_weights(network.weights().values(), network.parameters());
  const GoldenArray<Device, Token> source_bs(
      g.device(), g.file().tokens("input.source_bs", source, 0, g.last_token(config.source_vocabulary), 0));
  const GoldenArray<Device, Token> source_mask_bs = g.read_mask(B, S, "input.mask_bs");
  const GoldenArray<Device, Token> tokens_bc(g.device(),
                                             g.file().tokens("input.tokens_bc", {B, C}, 0, g.last_token(V), 0));
  const PassContext pass{.B = B, .C = C, .S = S, .source_mask_bs = source_mask_bs.data()};
  DeviceBatch<T> batch{.token_bc = tokens_bc.data(), .source_bs = source_bs.data()};
  network.forward(batch, pass);
  g.give_rows("output.logits_bcv", {B, C, V}, network.logits_bcv(), network.logit_stride());
  g.give_activations([&](const Inspector& inspector) { network.inspect(inspector, pass); });
  if (!g.goes_back("input.targets_bc") && !g.file().has("output.loss")) return;
  const GoldenArray<Device, Token> targets_bc = g.read_targets(B, C, V);
  batch.target_r = targets_bc.data();
  g.give("output.loss", {}, network.loss(batch, smoothing, pass).mean);
  network.backward(batch, smoothing, pass);
  g.give_gradients(network.weights().gradients(), network.parameters());
}

// Inference, one source after another.
template <class Device, class T>
void golden_beam_search(GoldenCases<Device, T>& g) {
  const ModelConfig config = golden_sequences_config(g);
  for (const char* key : {"beam", "length_penalty", "max_length", "begin_token", "end_token"}) g.file().setting(key);
  const Index V = config.vocabulary, M = g.file().integer_setting("beam", 1, 1, V);
  const BeamSettings settings{
      .width = M,
      .length_penalty = g.file().real_setting("length_penalty", 0, -1e3, 1e3),
      .most_tokens = g.file().integer_setting("max_length", 1, 1, std::min<Index>(config.context, 1 << 16)),
      .begin = static_cast<Token>(g.file().integer_setting("begin_token", 0, 0, g.last_token(V))),
      .end = static_cast<Token>(g.file().integer_setting("end_token", 0, 0, g.last_token(V)))};
  const GoldenShape source = g.file().shape("input.source_bs", 2);
  const Index B = source[0], S = source[1], C = settings.most_tokens;
  Network<Device, T> network(g.device(), config, {.B = 1, .C = 1, .positions = C, .S = S, .hypotheses = M});
  g.read_weights(network.weights().values(), network.parameters());
  const GoldenArray<Device, Token> source_bs(
      g.device(), g.file().tokens("input.source_bs", source, 0, g.last_token(config.source_vocabulary), 0));
  const GoldenArray<Device, Token> mask_bs = g.read_mask(B, S, "input.mask_bs");
  GoldenArray<Device, Token> token(g.device(), 1);
  std::vector<T> logits_v(static_cast<std::size_t>(V));
  std::vector<double> wide_logits_v;
  const auto next = [&](Token last, Index position, Index hypothesis) -> std::span<const double> {
    network.arenas().work_on(hypothesis);
    g.device().copy_from_host(token.data(), &last, 1);
    g.device().copy_to_host(logits_v.data(), network.decode(token.data(), position), V);
    wide_logits_v.assign(logits_v.begin(), logits_v.end());
    return wide_logits_v;
  };
  const auto copy = [&](Index to, Index from) { network.arenas().copy_state(to, from); };
  std::vector<double> tokens_bmc(static_cast<std::size_t>(B * M * C), -1), score_bm, log_probability_bm;
  for (Index b = 0; b < B; ++b) {
    network.arenas().work_on(0);
    network.reset({.source_bs = source_bs.data() + b * S},
                  {.B = 1, .C = 1, .S = S, .source_mask_bs = mask_bs.data() ? mask_bs.data() + b * S : nullptr});
    const std::vector<Hypothesis> found = abh::beam_search(settings, next, copy);
    for (Index m = 0; m < static_cast<Index>(found.size()); ++m) {
      const Hypothesis& hypothesis = found[static_cast<std::size_t>(m)];
      std::copy(hypothesis.tokens.begin(), hypothesis.tokens.end(), tokens_bmc.begin() + (b * M + m) * C);
      score_bm.push_back(hypothesis.score);
      log_probability_bm.push_back(hypothesis.log_probability);
    }
    if (static_cast<Index>(found.size()) < M)
      g.file().fail("metadata beam: fewer than " + std::to_string(M) + " are found");
  }
  g.results()["output.tokens_bmc"] = {{B, M, C}, tokens_bmc};
  g.results()["output.score_bm"] = {{B, M}, score_bm};
  g.results()["output.log_probability_bm"] = {{B, M}, log_probability_bm};
}

// Cases of golden and bench.
struct SequenceCases {
  template <class Golden>
  static void add_golden(std::vector<typename Golden::Case>& cases) {
    cases.push_back({"cross_attention", [](Golden& g) { golden_cross_attention(g); }, {"heads"}});
    cases.push_back({"bahdanau_attention",
                     [](Golden& g) { golden_bahdanau_of_memory(g); },
                     {"heads"},
                     false,
                     [](const GoldenFile& file) { return file.has("input.memory_bse"); }});
    cases.push_back({"seq2seq",
                     [](Golden& g) { golden_seq2seq(g); },
                     {"label_smoothing", "encoder_layers", "decoder_layers", "embeddings", "cross"},
                     true});
    cases.push_back({"beam_search",
                     [](Golden& g) { golden_beam_search(g); },
                     {"encoder_layers", "decoder_layers", "embeddings", "cross", "beam", "length_penalty", "max_length",
                      "begin_token", "end_token"},
                     true});
  }
  template <class Bench>
  static void measure(Bench& bench) {
    const Index count = bench.B() * bench.C() * bench.config().ffn_channels();
    bench.layer("relu", ReluCase{.count = count}, count, 1, 1);
  }
};

}  // namespace abh
