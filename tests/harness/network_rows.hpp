#pragma once

// The networks that tests train, as settings and a batch.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/types.hpp"
#include "blocks/layout.hpp"
#include "tests/harness/device_array.hpp"
#include "tests/harness/rows.hpp"
#include "tests/harness/settings.hpp"

namespace abh {

// A network with a batch for training.
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
  std::vector<Parameter> parameters() const;
  // Weights at the scale of spec_of, in the order of the arena.
  Array<double> weights(std::uint64_t seed = 1) const;
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

// Every mixer, or every mixer with a window, alone and with all optional features.
inline std::vector<NetworkCase> mixer_cases(const std::string& window = "0") {
  std::vector<NetworkCase> cases;
  const bool windowed = window != "0";
  std::size_t number = 0;
  for (const MixerProperties& mixer : Mixers::properties) {
    const std::size_t i = number + (windowed ? 1 : 0);  // a window has the other settings
    number += mixer.has_window ? 2 : 1;
    if (windowed && !mixer.has_window) continue;
    cases.push_back(network_case(mixer.name, window));
    NetworkCase full = cases.back();
    full.config = changed(full.config, "conv_kernel=3 embedding_norm=1 logit_bias=1 logit_scale=0.5 attention_bias=1");
    full.config = changed(full.config, i % 2 == 0 ? "conv_groups=0 ffn_bias=1 values=own projection=1 skip=normed"
                                                  : "conv_groups=2 ffn_bias=0 values=shared projection=0 skip=stream");
    full.config.final_norm = i % 3 != 0;
    full.label_smoothing = 0.1;
    full.masked = true;
    full.dropout = 0.2;
    cases.push_back(full);
  }
  return cases;
}

// All mixers of the core in one network.
inline NetworkCase mixed_case(const std::string& positions, const std::string& changes = "") {
  NetworkCase mixed = network_case("dot,additive,metric,quadratic", "0", 2,
                                   "layers=4 conv_groups=1 positions=" + positions + " " + changes);
  mixed.dropout = 0.3;
  return mixed;
}

// Windows of attention, one of a single position.
inline std::vector<NetworkCase> attention_window_cases(const std::string& mixers) {
  std::vector<NetworkCase> cases;
  for (const char* const window : {"1,3,2,4", "3"}) {
    NetworkCase near = network_case(mixers, "0", 0, "layers=4 positions=alibi");
    near.config.attention_window = window;
    near.masked = true;
    cases.push_back(near);
  }
  return cases;
}

// Odd and even widths of rows, one head or three.
inline NetworkCase case_for_scratch(const std::string& mixer, const std::string& window, Index channels) {
  NetworkCase network = network_case(mixer, window, 2);
  network.config.channels = channels;
  network.config.heads = channels % 3 == 0 ? 3 : 1;
  network.B = 3;
  network.C = network.config.context = 14;
  network.dropout = 0.35;
  return network;
}

// Tags of further rows: networks for inference tests, networks for case_for_scratch, and networks with weight decay.
struct ForSteps;
struct ForScratch;
struct ForWeightDecay;

// The networks of the core and of features.
inline std::vector<NetworkCase> all_cases() {
  std::vector<NetworkCase> cases = mixer_cases();
  for (const char* positions : {"learned", "none", "alibi"}) cases.push_back(mixed_case(positions));
  for (const NetworkCase& near : attention_window_cases("dot,dot,metric,quadratic")) cases.push_back(near);
  return Rows<NetworkCase>::all(cases);
}

}  // namespace abh
