#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "apps/golden/golden.hpp"
#include "extras/lsh/lsh_attention_case.hpp"
#include "network/mixers.hpp"

namespace abh {

// Block `lsh` with given rotations, and rules that the mixer does not have.
template <class Device, class T>
void golden_lsh(GoldenCases<Device, T>& g) {
  for (const char* key : {"heads", "chunk"}) g.file().setting(key);
  const GoldenShape x = g.file().shape("input.x_bcd", 3), rotations = g.file().shape("input.rotations_nukr", 4);
  ModelConfig config = g.block_config(x[1], x[2]);
  config.mixer = LshMixer::properties.name;
  config.head_channels = g.head_channels("weight.project_hd", config.heads);
  config.extras.lsh_rounds = rotations[1];
  config.extras.lsh_buckets = 2 * rotations[3];
  config.extras.lsh_piece = g.file().integer_setting("chunk", 1, 1, largest_context);
  const std::string duplicates = g.file().has_setting("duplicates") ? g.file().setting("duplicates") : "corrected";
  const LshRules rules{.counted = g.choice("duplicates", duplicates, {"corrected", "counted"}) == "counted",
                       .within_bucket = g.file().integer_setting("within_bucket", 0, 0, 1) == 1};
  g.run_block(config, false, false, [&](Layout<T>& layout, const BlockCapacity& capacity, const BlockOptions& options) {
    return std::make_unique<LshBlock<Device, T>>(layout, "", config, capacity, options, rules);
  });
}

// Cases of golden and bench.
struct LshCases {
  template <class Golden>
  static void add_golden(std::vector<typename Golden::Case>& cases) {
    cases.push_back({"lsh_attention",
                     [](Golden& g) { golden_lsh(g); },
                     {"heads", "causal", "chunk", "duplicates", "within_bucket"}});
  }
  template <class Bench>
  static void measure(Bench& bench) {
    const Index B = bench.B(), C = bench.C(), N = bench.N(), K = bench.K();
    const Index rounds = 2, piece = std::min<Index>(64, C);
    bench.layer("lsh_attention",
                LshAttentionCase{.B = B, .C = C, .N = N, .K = K, .U = rounds, .R = 4, .piece_size = piece},
                B * C * N * K * rounds * 2 * piece, 4, 10);
  }
};

}  // namespace abh
