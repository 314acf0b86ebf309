#pragma once

#include "apps/golden/golden_cases.hpp"

namespace abh {

// A block without its norm and residual, with queries from x, and keys and values from a memory.
template <class Device, class T>
template <class MemoryBlock>
void GoldenCases<Device, T>::block_of_memory(ModelConfig config) {
  file_.setting("heads");
  const Shape x = file_.shape("input.x_bcd", 3), memory = file_.shape("input.memory_bse", 3);
  const Index B = x[0], C = x[1], S = memory[1];
  config.head_channels = head_channels("weight.query_hd", config.heads);
  config.check();
  Source<T> from;
  const auto make = [&](Layout<T>& layout) {
    return MemoryBlock(layout, "", config, memory[2], from, {.B = B, .C = C, .positions = 0, .S = S},
                       {.norm = false, .residual = false});
  };
  Layout<T> measured;
  make(measured);
  Array<T> weights(device_, measured.weight_count());
  Array<Accum<T>> gradients(device_, measured.weight_count());
  DeviceMemory activations(device_.memory(), measured.activation_bytes());
  Layout<T> layout(measured, weights.data(), gradients.data(), activations.as<std::byte>(), nullptr);
  MemoryBlock block = make(layout);
  read_weights(weights.data(), layout.parameters());

  Array<Token> mask_bs = read_mask(B, S, "input.mask_bs");
  Array<T> x_bcd = read("input.x_bcd", x), y_bcd = zeros<T>(x);
  Array<T> memory_bse = read("input.memory_bse", {B, S, memory[2]}), d_memory_bse = zeros<T>(memory);
  from = {.memory_bse = memory_bse.data(), .S = S, .mask_bs = mask_bs.data(), .d_memory_bse = d_memory_bse.data()};
  const Pass pass{.B = B, .C = C};
  block.forward(device_, y_bcd.data(), x_bcd.data(), pass);
  give("output.y_bcd", x, y_bcd.data());
  give_activations([&](const Look& look) { block.look(device_, look, y_bcd.data(), pass); });
  if (!goes_back("grad_output.y_bcd")) return;
  Array<T> d_x_bcd = read("grad_output.y_bcd", x);
  block.backward(device_, d_x_bcd.data(), x_bcd.data(), pass);
  give("grad_input.x_bcd", x, d_x_bcd.data());
  give("grad_input.memory_bse", memory, d_memory_bse.data());
  give_gradients(gradients.data(), layout.parameters());
}

template <class Device, class T>
void GoldenCases<Device, T>::cross_attention() {
  const Shape x = file_.shape("input.x_bcd", 3);
  ModelConfig config = block_config(x[1], x[2]);
  config.attention_bias = has_attention_bias("weight.");
  block_of_memory<CrossBlock<Device, T>>(config);
}

template <class Device, class T>
void GoldenCases<Device, T>::bahdanau_attention_of_memory() {
  const Shape x = file_.shape("input.x_bcd", 3);
  block_of_memory<CrossBlock<Device, T, AdditiveScores>>(block_config(x[1], x[2]));
}

// One segment with the rows before it, which are a chunk of their own: sequences come one after the other.
template <class Device, class T>
void GoldenCases<Device, T>::transformer_xl_attention() {
  file_.setting("heads");
  const Shape x = file_.shape("input.x_bcd", 3);
  const Index B = x[0], C = x[1], D = x[2];
  const bool has_memory = file_.has("input.memory_bsd");
  const Index S = has_memory ? file_.shape("input.memory_bsd", 3)[1] : 0;
  ModelConfig config = block_config(S + C, D);
  config.mixer = TransformerXlMixer::properties.name;
  config.head_channels = head_channels("weight.query_hd", config.heads);
  config.segment = std::max({S, C, Index{1}});
  config.memory = S;
  check_model(config);
  const auto make = [&](Layout<T>& layout) {
    return TransformerXlBlock<Device, T>(layout, "", config,
                                         {.B = 1, .C = std::max(S, C), .positions = 0, .sequence = S + C},
                                         {.norm = false, .residual = false});
  };
  Layout<T> measured;
  make(measured);
  const auto bytes_of_carried = static_cast<Index>(measured.carried_bytes());
  Array<T> weights(device_, measured.weight_count());
  Array<Accum<T>> gradients(device_, measured.weight_count());
  DeviceMemory activations(device_.memory(), measured.activation_bytes());
  DeviceMemory carried(device_.memory(), measured.carried_bytes()), entered(device_.memory(), measured.carried_bytes());
  Layout<T> layout(measured, weights.data(), gradients.data(), activations.as<std::byte>(), nullptr,
                   carried.as<std::byte>());
  TransformerXlBlock<Device, T> block = make(layout);
  layout.write_constants(device_);
  read_weights(weights.data(), layout.parameters());

  Array<T> x_bcd = read("input.x_bcd", x), y_bcd = zeros<T>(x), room_sd = zeros<T>({S, D});
  Array<T> memory_bsd = has_memory ? read("input.memory_bsd", {B, S, D}) : zeros<T>({0});
  const bool backward = goes_back("grad_output.y_bcd");
  Array<T> d_x_bcd = backward ? read("grad_output.y_bcd", x) : zeros<T>(x);
  for (Index b = 0; b < B; ++b) {
    const Index first = b * C * D;
    const Pass before{.B = 1, .C = S, .sequence = S + C}, pass{.B = 1, .C = C, .first_c = S, .sequence = S + C};
    if (S > 0) block.forward(device_, room_sd.data(), memory_bsd.data() + b * S * D, before);
    device_.copy(entered.as<std::byte>(), carried.as<std::byte>(), bytes_of_carried);
    block.forward(device_, y_bcd.data() + first, x_bcd.data() + first, pass);
    if (!backward) continue;
    device_.copy(carried.as<std::byte>(), entered.as<std::byte>(), bytes_of_carried);
    block.backward(device_, d_x_bcd.data() + first, x_bcd.data() + first, pass);
  }
  give("output.y_bcd", x, y_bcd.data());
  if (!backward) return;
  give("grad_input.x_bcd", x, d_x_bcd.data());
  give_gradients(gradients.data(), layout.parameters());
}

// Everything about the network that the shapes and names of its weights say.
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
  if (given.classifier) read_head(config, given.otherwise);
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
  if (mixers.front().has_segments) {
    for (const char* key : {"segment", "memory"}) file_.setting(key);
  }
  for (std::size_t layer = 0; layer < mixers.size(); ++layer) {
    if (!mixers[layer].head_projection) continue;
    const std::string prefix = "weight.blocks." + std::to_string(layer) + ".mixer.";
    config.head_channels = head_channels(prefix + mixers[layer].head_projection, config.heads);
    config.attention_bias = config.attention_bias || has_attention_bias(prefix);
  }
  // A head that sees all of the sequence is global, however long the table.
  std::string windows;
  for (const Index window : config.windows()) {
    windows += (windows.empty() ? "" : ",") + std::to_string(window < C ? window : 0);
  }
  config.window = windows;
  check_model(config);
  return config;
}

template <class Device, class T>
void GoldenCases<Device, T>::read_head(ModelConfig& config, const std::string& otherwise) const {
  config.classes = file_.shape("weight.classifier.weight_od", 2)[0];
  config.class_pooling = file_.has_setting("pooling") ? file_.setting("pooling") : otherwise;
  if (config.class_pooling != "mean" && config.class_pooling != "cls") {
    file_.fail("metadata pooling: expected mean or cls, found \"" + config.class_pooling + "\"");
  }
}

// The list of mixers may be as long as `layers` says: that first.
template <class Device, class T>
std::vector<MixerProperties> GoldenCases<Device, T>::checked_mixers(const ModelConfig& config) const {
  if (config.layers < 1 || config.layers > largest_layers) {
    file_.fail("metadata layers: expected 1 to " + std::to_string(largest_layers) + ", found " +
               std::to_string(config.layers));
  }
  return mixer_properties(config);
}

template <class Device, class T>
void GoldenCases<Device, T>::chunked_language_model() {
  file_.setting("chunk");
  language_model(network_config(), file_.integer_setting("chunk", 1, 1, largest_context),
                 file_.integer_setting("truncated", 0, 0, 1) == 1);
}

template <class Device, class T>
void GoldenCases<Device, T>::reversible_language_model() {
  ModelConfig config = network_config();
  config.reversible = true;
  check_model(config);
  language_model(config, file_.integer_setting("chunk", 0, 0, largest_context), false);
}

// chunk, truncated: as in NetworkExtent.
template <class Device, class T>
void GoldenCases<Device, T>::language_model(const ModelConfig& config, Index chunk, bool truncated) {
  check_training(config, {.chunk = chunk, .truncated = truncated});
  const double smoothing = file_.real_setting("label_smoothing", 0, 0, 1);
  const Shape tokens = file_.shape("input.tokens_bc", 2);
  const Index B = tokens[0], C = tokens[1], V = config.vocabulary;
  Network<Device, T> network(device_, config,
                             {.B = B, .C = C, .training = true, .chunk = chunk, .truncated = truncated});
  read_weights(network.weights().values(), network.parameters());
  Array<Token> tokens_bc(device_, file_.tokens("input.tokens_bc", tokens, 0, last_token(V), 0));
  Array<Token> mask_bc = read_mask(B, C);
  const bool learns = goes_back("input.targets_bc") || file_.has("output.loss");
  std::vector<Token> host_targets(static_cast<std::size_t>(B * C), ignored_target);
  if (learns) host_targets = file_.tokens("input.targets_bc", tokens, 0, last_token(V), ignored_target);
  const Array<Token> targets_bc(device_, host_targets);
  const Index counted = B * C - std::count(host_targets.begin(), host_targets.end(), ignored_target);
  const Array<Index> count(device_, std::vector<Index>{counted});
  const Pass pass{.B = B, .C = C, .mask_bc = mask_bc.data(), .count = count.data()};

  std::vector<T> logits_bcv(static_cast<std::size_t>(B * C * V));
  double loss_sum = 0;
  const auto seen = [&](Index b, Index, const Pass& part, const auto& loss) {
    if (!chunk) give_activations([&](const Look& look) { network.look(look, part); });
    device_.copy_to_host(logits_bcv.data() + (b * C + part.first_c) * V, network.logits_bcv(), part.BC() * V);
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
    run_in_chunks(network, {tokens_bc.data(), targets_bc.data()}, smoothing, pass, seen);
  }
  results_["output.logits_bcv"] = {{B, C, V}, std::vector<double>(logits_bcv.begin(), logits_bcv.end())};
}

// One row of logits a sequence. With cls pooling every sequence begins with a token behind the vocabulary.
template <class Device, class T>
void GoldenCases<Device, T>::classifier() {
  const ModelConfig config = network_config({.classifier = true});
  const Shape tokens = file_.shape("input.tokens_bc", 2);
  const Index B = tokens[0], first = config.has_cls() ? 1 : 0;
  const auto with_first = [&](std::vector<Token> rows, Token token) {
    for (Index b = B; first && b-- > 0;) rows.insert(rows.begin() + b * tokens[1], token);
    return rows;
  };
  const Token last = last_token(config.vocabulary);
  std::vector<Token> mask;
  if (file_.has("input.mask_bc")) mask = with_first(file_.tokens("input.mask_bc", tokens, 0, 1, 0), 1);
  classify(config, B, tokens[1] + first, with_first(file_.tokens("input.tokens_bc", tokens, 0, last, 0), last + 1),
           mask, {});
}

// An image is cut into patches, row by row, of which each is laid out channel by channel and row by row.
template <class Device, class T>
void GoldenCases<Device, T>::vision_transformer() {
  file_.setting("patch");
  const Index P = file_.integer_setting("patch", 1, 1, largest_context);
  const Shape image = file_.shape("input.image_bgyx", 4);
  const Index B = image[0], G = image[1], Y = image[2], X = image[3];
  if (Y % P != 0 || X % P != 0) {
    file_.fail("metadata patch: " + std::to_string(P) + " does not divide the " + std::to_string(Y) + " rows and " +
               std::to_string(X) + " columns of input.image_bgyx");
  }
  const ModelConfig config =
      network_config({.classifier = true, .otherwise = "cls", .patches = Y / P * (X / P), .patch_inputs = G * P * P});
  const std::vector<double> pixels = file_.reals("input.image_bgyx", image);
  std::vector<double> patches;
  std::vector<Token> tokens;
  for (Index b = 0; b < B; ++b) {
    if (config.has_cls()) tokens.push_back(0);
    tokens.insert(tokens.end(), static_cast<std::size_t>(Y / P * (X / P)), -1);
    for (Index y = 0; y < Y; y += P) {
      for (Index x = 0; x < X; x += P) {
        for (Index i = 0; i < G * P * P; ++i) {
          const Index g = i / (P * P), row = y + i / P % P, column = x + i % P;
          patches.push_back(pixels[static_cast<std::size_t>(((b * G + g) * Y + row) * X + column)]);
        }
      }
    }
  }
  classify(config, B, static_cast<Index>(tokens.size()) / B, tokens, {}, patches);
}

// Runs a classifier on B sequences of C positions, forward, and backward where the file has labels.
template <class Device, class T>
void GoldenCases<Device, T>::classify(const ModelConfig& config, Index B, Index C, const std::vector<Token>& tokens,
                                      const std::vector<Token>& mask, const std::vector<double>& patches) {
  const double smoothing = file_.real_setting("label_smoothing", 0, 0, 1);
  const Index O = config.classes;
  Network<Device, T> network(device_, config, {.B = B, .C = C, .training = true});
  read_weights(network.weights().values(), network.parameters());
  const Array<Token> tokens_bc(device_, tokens), mask_bc(device_, mask);
  const Array<T> patch_bpi(device_, rounded(patches));
  const Pass pass{.B = B, .C = C, .mask_bc = mask_bc.data()};
  network.forward({tokens_bc.data(), nullptr, patch_bpi.data()}, pass);
  give("output.logits_bo", {B, O}, network.logits_bcv());
  give_activations([&](const Look& look) { network.look(look, pass); });
  if (!goes_back("input.labels_b") && !file_.has("output.loss")) return;
  const Array<Token> labels_b(device_, file_.tokens("input.labels_b", {B}, 0, last_token(O), ignored_target));
  const DeviceBatch<T> batch{tokens_bc.data(), labels_b.data(), patch_bpi.data()};
  give("output.loss", {}, network.loss(batch, smoothing, pass).mean);
  network.backward(batch, smoothing, pass);
  give_gradients(network.weights().gradients(), network.parameters());
}

}  // namespace abh
