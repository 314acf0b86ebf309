#pragma once

// Networks for the comparison of estimated and used memory.

#include <string>
#include <vector>

#include "network/capacity.hpp"
#include "tests/harness/network_rows.hpp"

namespace abh {

// A network that is trained on B sequences of C positions, without chunks in every way, and in chunks computed again.
struct MemoryCase {
  ModelConfig config;
  Index B, C, threads;
  Index chunk = 0;
  bool wide = false;  // for the widest instruction set of the build
};

// The sizes of `tiny` with one layer of a mixer, changed by `changes`.
inline std::vector<MemoryCase> memory_cases_of(const MixerProperties& mixer, Index conv_groups,
                                               const std::string& changes) {
  const std::string one = "layers=1 " + needs_of(mixer.name) + "mixer=" + mixer.name + " channels=64";
  ModelConfig model = changed(Preset("tiny").model, one);
  model.conv_groups = conv_groups < 0 ? 0 : conv_groups;
  if (conv_groups < 0) model.conv_kernel = 0;
  std::vector<MemoryCase> cases;
  if (changes.empty()) cases = {{model, 12, 64, 2}, {model, 1, 1, 1}, {model, 2, 33, 3}};
  model = changed(model, "values=own positions=none " + changes);
  cases.push_back({model, 2, 64, 1});
  // One wide head, few channels: scratch of the pooling and of the core, not of the matrices.
  model = changed(model, "channels=32 heads=1 context=300");
  cases.push_back({model, 1, 300, 1});
  cases.push_back({model, 2, 33, 3, 0, true});
  return cases;
}

inline const std::vector<Index> memory_conv_groups = {-1, 0, 1, 2, 32};  // -1: no convolution

inline std::vector<MemoryCase> memory_cases() {
  std::vector<MemoryCase> cases;
  for (const MixerProperties& mixer : Mixers::properties) {
    for (const Index groups : memory_conv_groups) {
      for (const MemoryCase& each : memory_cases_of(mixer, groups, "")) cases.push_back(each);
    }
    const ModelConfig model = changed(Preset("baby").model, "layers=1 " + needs_of(mixer.name) + "mixer=" + mixer.name);
    cases.push_back({model, 2, model.context, 2});
  }
  // A vocabulary larger than all other parts, and many heads.
  ModelConfig model = network_case("dot", "0", 0, "channels=24 heads=24 vocabulary_size=3000").config;
  cases.push_back({model, 3, 7, 1});
  model.mixer = "additive";
  cases.push_back({model, 3, 7, 2});
  return cases;
}

// Networks whose largest scratch memory is in different layers.
struct ScratchCase {
  const char *mixer, *window;
  Index channels, heads, conv_kernel, conv_groups, B, C;
  bool muon, recompute;
  Index threads = 1;  // for long steps; short steps run with 1, 2 and 3 threads
  Index chunk = 0;

  ModelConfig config() const {
    ModelConfig config = network_case(mixer, window, conv_kernel).config;
    config.channels = channels;
    config.heads = heads;
    config.conv_groups = conv_groups;
    config.context = C;
    config.additive.values = B % 2 == 0 ? "own" : "shared";
    config.embedding_norm = recompute;
    config.logit_bias = muon;
    config.attention_bias = recompute;
    return config;
  }
  NetworkCapacity capacity() const {
    return {.B = B, .C = C, .training = true, .muon = muon, .recompute = recompute, .chunk = chunk};
  }
};

// Tags of further rows.
struct ForSmallSteps;
struct ForLongSteps;

inline std::vector<ScratchCase> small_steps() {
  return {
      {"additive", "0", 6, 2, 0, 0, 2, 5, false, false},    {"additive", "0", 24, 3, 3, 0, 3, 9, true, false},
      {"metric", "0", 6, 2, 0, 0, 2, 5, false, false},      {"metric", "0", 24, 3, 3, 8, 1, 33, true, false},
      {"quadratic", "0", 24, 2, 0, 0, 3, 7, false, true},   {"quadratic", "0", 20, 1, 4, 2, 2, 9, true, false},
      {"dot", "0", 6, 2, 0, 0, 2, 5, false, false},         {"dot", "0", 24, 24, 3, 3, 1, 17, true, true},
      {"dot", "0", 36, 4, 2, 0, 2, 33, false, false},       {"dot,metric", "0", 40, 1, 0, 0, 1, 1, true, false},
      {"additive", "0", 136, 1, 0, 0, 1, 20, false, false}, {"dot", "0", 136, 1, 0, 0, 1, 20, false, false},
  };
}

inline std::vector<ScratchCase> long_steps() {
  return {
      {"additive", "0", 32, 2, 0, 0, 1, 600, false, false, 1},
      {"additive", "0", 32, 1, 3, 0, 3, 1100, false, true, 2},
      {"additive", "0", 8, 1, 0, 0, 9, 300, true, false, 3},
      {"metric", "0", 32, 2, 0, 0, 1, 600, false, false, 3},
      {"metric", "0", 8, 1, 2, 1, 2, 300, false, true, 1},
      {"metric", "0", 160, 1, 0, 0, 1, 130, true, false, 2},
      {"quadratic", "0", 32, 2, 4, 2, 1, 300, false, false, 3},
      {"quadratic", "0", 144, 2, 0, 0, 2, 70, true, true, 1},
      {"dot", "0", 32, 2, 0, 0, 1, 1100, false, false, 2},
      {"dot", "0", 8, 1, 0, 0, 1, 1300, false, true, 3},
      {"dot", "0", 200, 1, 0, 0, 1, 600, false, false, 1},
      {"dot", "0", 20, 1, 3, 0, 16, 129, false, false, 2},
      {"dot", "0", 160, 8, 3, 4, 1, 200, true, false, 3},
      {"dot", "0", 256, 4, 4, 1, 1, 64, false, false, 1},
      {"dot", "0", 264, 4, 0, 0, 2, 70, false, true, 2},
      {"additive", "0", 136, 4, 3, 0, 1, 520, true, false, 1},
      {"dot", "0", 24, 24, 0, 0, 3, 70, false, false, 2},
      {"quadratic,dot", "0", 96, 12, 2, 12, 4, 65, false, false, 1},
  };
}

}  // namespace abh
