#pragma once

#include <vector>

#include "apps/golden/golden.hpp"
#include "extras/reversible/weighted_sum_case.hpp"
#include "network/mixers.hpp"

namespace abh {

template <class Device, class T>
void golden_reversible_language_model(GoldenCases<Device, T>& g) {
  ModelConfig config = g.network_config();
  config.reversible = true;
  check_model(config);
  g.language_model(config, g.file().integer_setting("chunk", 0, 0, largest_context), false);
}

// Cases of golden and bench.
struct ReversibleCases {
  template <class Golden>
  static void add_golden(std::vector<typename Golden::Case>& cases) {
    cases.push_back({"reversible_language_model",
                     [](Golden& g) { golden_reversible_language_model(g); },
                     {"label_smoothing", "chunk"},
                     true});
  }
  template <class Bench>
  static void measure(Bench& bench) {
    const Index count = bench.B() * bench.C() * bench.D();
    bench.layer("weighted_sum", WeightedSumCase{.count = count}, count, 3, 2);
  }
};

}  // namespace abh
