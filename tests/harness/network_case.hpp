#pragma once

// Networks that tests train.

#include "network/networks.hpp"
#include "tests/harness/block_case.hpp"
#include "tests/harness/settings.hpp"

namespace abh {

using Reference = CpuDevice<Isa::baseline>;

// Compiled once: those in double with what checks golden files, the others in tests/harness/network_case.cpp.
extern template class Network<Reference, double>;
extern template class Network<PlainDevice, double>;
extern template class Network<CpuDevice<Isa::scalar>, float>;
extern template class Network<CpuDevice<Isa::scalar>, Dual>;

// A network with a batch that it is trained on.
struct NetworkCase {
  ModelConfig config;
  Index B = 2, C = 5, S = 0;
  double dropout = 0, label_smoothing = 0;
  bool masked = false, recompute = false;
  StepState state = {.seed = 9, .step = 4};  // read only where dropout > 0

  std::vector<Token> tokens_bc() const {
    std::vector<Token> tokens;
    for (Index i = 0; i < B * C; ++i) tokens.push_back(static_cast<Token>((i * i + 3 * i + 1) % config.vocabulary));
    return tokens;
  }
  std::vector<Token> targets_bc() const {
    std::vector<Token> targets = tokens_bc();
    for (std::size_t i = 0; i + 1 < targets.size(); ++i) targets[i] = targets[i + 1];
    targets[1] = targets.back() = -100;
    return targets;
  }
  // The last position of the first sequence and the first two of the second one are padding.
  std::vector<Token> mask_bc() const {
    std::vector<Token> mask(static_cast<std::size_t>(B * C), 1);
    mask[static_cast<std::size_t>(C) - 1] = 0;
    if (B > 1) mask[static_cast<std::size_t>(C)] = mask[static_cast<std::size_t>(C) + 1] = 0;
    return mask;
  }
  std::vector<Token> source_bs() const {
    std::vector<Token> tokens;
    for (Index i = 0; i < B * S; ++i) tokens.push_back(static_cast<Token>((i * i + i + 2) % config.source_vocabulary));
    return tokens;
  }
  // The last two positions of the second source are padding.
  std::vector<Token> source_mask_bs() const {
    std::vector<Token> mask(static_cast<std::size_t>(B * S), 1);
    if (B > 1 && S > 2) mask[static_cast<std::size_t>(2 * S) - 1] = mask[static_cast<std::size_t>(2 * S) - 2] = 0;
    return mask;
  }
  std::vector<Parameter> parameters() const { return Network<Reference, double>::parameter_table(config); }
  // Weights at the scale of slot_of, in the order of the arena.
  Array<double> weights(std::uint64_t seed = 1) const {
    Array<double> all;
    std::uint32_t index = 0;
    for (const Parameter& parameter : parameters()) {
      all.resize(std::max(all.size(), static_cast<std::size_t>(parameter.offset + parameter.count)));
      const Array<double> values = random_values(slot_of(parameter), seed, index++);
      for (std::size_t i = 0; i < values.size(); ++i) all[static_cast<std::size_t>(parameter.offset) + i] = values[i];
    }
    return all;
  }
};

// With `changes` of its settings (tests/harness/settings.hpp).
inline NetworkCase network_case(const std::string& mixer, const std::string& window = "0", Index conv_kernel = 0,
                                const std::string& changes = "") {
  NetworkCase network;
  network.config = {.layers = 2, .channels = 6, .heads = 2, .context = 7, .vocabulary = 11, .mixer = mixer};
  network.config.window = window;
  network.config.conv_kernel = conv_kernel;
  network.config.conv_groups = 0;
  network.config = changed(network.config, needs_of(mixer) + changes);
  return network;
}

// A network that reads sources, with so many layers of encoder and decoder.
inline NetworkCase encoder_case(const std::string& mixer, Index encoder_layers, Index decoder_layers,
                                const std::string& changes = "") {
  NetworkCase network = network_case(mixer);
  network.S = 6;
  network.config.layers = encoder_layers + decoder_layers;
  network.config.encoder_layers = encoder_layers;
  network.config.decoder_layers = decoder_layers;
  network.config.source_vocabulary = 9;
  network.config.source_context = 8;
  network.config = changed(network.config, changes);
  return network;
}

// The values of --positions that this build supports.
inline std::vector<std::string> all_positions() {
  std::vector<std::string> all = {"learned", "none", "sinusoidal", "rotary", "alibi"};
  std::erase_if(all, [](const std::string& each) { return !is_built({{"positions", each}}); });
  return all;
}

// Every mixer, with what is switched on and off around it.
inline std::vector<NetworkCase> all_cases() {
  std::vector<NetworkCase> cases;
  for (const MixerProperties& mixer : Mixers::properties) {
    cases.push_back(network_case(mixer.name));
    if (mixer.has_window && has_extras) cases.push_back(network_case(mixer.name, "2,3"));
  }
  const std::size_t plain = cases.size();
  for (std::size_t i = 0; i < plain; ++i) {
    NetworkCase full = cases[i];
    full.config = changed(full.config, "conv_kernel=3 embedding_norm=1 logit_bias=1 logit_scale=0.5 attention_bias=1");
    full.config = changed(full.config, i % 2 == 0 ? "conv_groups=0 ffn_bias=1 values=own projection=1 skip=normed"
                                                  : "conv_groups=2 ffn_bias=0 values=shared projection=0 skip=stream");
    full.config.final_norm = i % 3 != 0;
    full.label_smoothing = 0.1;
    full.masked = true;
    full.dropout = 0.2;
    cases.push_back(full);
  }
  for (const std::string& positions : all_positions()) {
    NetworkCase mixed = network_case("dot,additive,metric,quadratic", has_extras ? "0,2,0,0" : "0", 2,
                                     "layers=4 conv_groups=1 positions=" + positions);
    mixed.config.embedding_norm = positions == "sinusoidal";
    mixed.config.rescale = has_extras && (positions == "none" || positions == "rotary") ? 4 : 0;
    mixed.dropout = 0.3;
    cases.push_back(mixed);
  }
  // Windows of attention, one of a single position.
  for (const char* const window : {"1,3,2,4", "3"}) {
    NetworkCase near = network_case(has_extras ? "dot,bahdanau,metric,quadratic" : "dot,dot,metric,quadratic", "0", 0,
                                    "layers=4 positions=alibi");
    near.config.attention_window = window;
    near.masked = true;
    cases.push_back(near);
  }
  if (!has_extras) return cases;
  // Heads that learn how far they look.
  cases.push_back(network_case("dot", "0", 0, "span=4 ramp=3 positions=none"));
  cases.push_back(network_case("dot,metric,quadratic,additive", "0", 3, "layers=4 span=5 ramp=2.5 positions=alibi"));
  cases.back().masked = true;
  cases.back().dropout = 0.2;
  cases.push_back(network_case("dot,metric", "0", 0, "span=9 ramp=6 attention_window=4,0 positions=rotary"));
  // Patterns, with a layer that has none.
  for (const char* pattern :
       {"pattern=strided stride=3", "pattern=fixed stride=2 summary=1 part=layers",
        "pattern=strided stride=2 part=layers positions=rotary", "pattern=fixed stride=3 summary=2",
        "pattern=strided stride=2 part=heads", "pattern=fixed stride=2 summary=1 part=heads"}) {
    NetworkCase sparse = network_case("dot,additive,dot", "0", 0, std::string("layers=3 ") + pattern);
    sparse.masked = cases.size() % 2 == 0;
    sparse.dropout = 0.2;
    cases.push_back(sparse);
  }
  // Encoder and decoder, norms behind the sums, tables of every kind.
  const char* const around[] = {"embeddings=target", "norm=post activation=relu embedding_scale=2.5 logit_bias=1",
                                "embeddings=shared source_vocabulary_size=11 attention_bias=1 embedding_norm=1"};
  std::size_t number = 0;
  for (const MixerProperties& mixer : Mixers::properties) {
    if (mixer.takes("segments") || mixer.takes("hashing")) continue;  // of no encoder or decoder
    NetworkCase translating = encoder_case(mixer.name, 1, 2, around[number % 3]);
    translating.masked = number % 2 == 0;
    translating.dropout = number % 2 == 0 ? 0.2 : 0;
    translating.label_smoothing = 0.1;
    cases.push_back(translating);
    ++number;
  }
  cases.push_back(encoder_case("dot,additive,dot", 2, 1, "positions=rotary conv_kernel=2 conv_groups=0"));
  cases.push_back(encoder_case("metric,dot", 1, 1, "positions=alibi norm=post"));
  cases.push_back(encoder_case("bahdanau,dot", 1, 1, "cross=bahdanau embeddings=target"));
  cases.push_back(network_case("additive,dot", "0", 3, "norm=post activation=relu embedding_scale=0.5"));
  // Hashing between other layers, and undone.
  cases.push_back(network_case("additive,lsh", "0,0", 0, "reversible=1 channels=8"));
  cases.back().masked = true;
  // Two streams: an even and an odd number of blocks, with a source and without.
  NetworkCase undone = network_case("additive,dot,leap,bahdanau", "0,0,3,0", 3,
                                    "layers=4 conv_groups=0 reversible=1 positions=alibi embedding_norm=1 values=own");
  undone.masked = true;
  undone.dropout = 0.2;
  undone.label_smoothing = 0.1;
  cases.push_back(undone);
  cases.push_back(network_case("metric", "0", 2, "layers=1 reversible=1 positions=rotary final_norm=0"));
  cases.push_back(network_case("average,identity,quadratic", "0", 0, "layers=3 reversible=1 logit_bias=1"));
  cases.push_back(network_case("transformer_xl", "0", 0, "reversible=1 positions=none segment=3 channels=8"));
  cases.push_back(network_case("dot,additive", "0", 0, "reversible=1 positions=alibi span=3 ramp=2"));
  cases.push_back(encoder_case("dot,additive,metric", 1, 2, "reversible=1 conv_kernel=2 embeddings=target"));
  cases.back().dropout = 0.2;
  return cases;
}

template <class Device>
Device device_of(Index threads) {
  if constexpr (std::is_same_v<Device, PlainDevice>) {
    return {};  // one thread
  } else {
    return Device(threads);
  }
}

// A network of one case on a device of its own.
template <class Device, class T>
class Built {
 public:
  explicit Built(const NetworkCase& network, const Array<double>& weights, Index threads = 1,
                 Processes& processes = one_process())
      : case_(network),
        tokens_(network.tokens_bc()),
        targets_(network.targets_bc()),
        mask_(network.mask_bc()),
        source_(network.source_bs()),
        source_mask_(network.source_mask_bs()),
        device(device_of<Device>(threads)),
        net(device, network.config,
            {.B = network.B, .C = network.C, .training = true, .recompute = network.recompute, .S = network.S},
            network.dropout, processes) {
    for (std::size_t i = 0; i < weights.size(); ++i) net.weights().values()[i] = static_cast<T>(weights[i]);
  }
  DeviceBatch<T> batch() const { return {tokens_.data(), targets_.data(), nullptr, source_.data()}; }
  Pass pass() const {
    return {.B = case_.B,
            .C = case_.C,
            .mask_bc = case_.masked ? mask_.data() : nullptr,
            .state = case_.dropout > 0 ? &case_.state : nullptr,
            .S = case_.S,
            .source_mask_bs = case_.masked ? source_mask_.data() : nullptr};
  }
  T forward() {
    net.forward(batch(), pass());
    return *net.loss(batch(), case_.label_smoothing, pass()).mean;
  }
  void backward() { net.backward(batch(), case_.label_smoothing, pass()); }
  Array<double> gradients() {
    const Array<T> all = copy_of(net.weights().gradients());
    return Array<double>(all.begin(), all.end());
  }
  // The numbers of all weights in one of the arenas.
  Array<T> copy_of(const T* arena) { return Array<T>(arena, arena + net.weights().count()); }
  // Runs the part of a training step that follows the gradient.
  void update(const TrainingConfig& training, StepState& state) {
    net.optimizer().measure_gradient(training, &state);
    net.optimizer().update(training, &state);
  }

 private:
  NetworkCase case_;
  std::vector<Token> tokens_, targets_, mask_, source_, source_mask_;

 public:
  Device device;
  Network<Device, T> net;
};

}  // namespace abh
