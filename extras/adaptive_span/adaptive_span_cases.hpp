#pragma once

#include <memory>
#include <vector>

#include "apps/golden/golden.hpp"
#include "extras/adaptive_span/adaptive_span_case.hpp"
#include "network/mixers.hpp"

namespace abh {

// Dot-product attention without norm, with learned spans.
template <class Device, class T>
void golden_adaptive_span(GoldenCases<Device, T>& g) {
  g.file().setting("ramp");
  const GoldenShape x = g.file().shape("input.x_bcd", 3);
  ModelConfig config = g.block_config(x[1], x[2]);
  config.mixer = "dot";
  config.head_channels = g.head_channels("weight.query_hd", config.heads);
  config.extras.span = x[1];
  ModelConfig priced = config;
  const double penalty = g.file().real_setting("penalty", 0, 0, 1e6);
  if (g.file().has_setting("penalty")) {
    double sum = 0;
    for (const double span : g.file().reals("weight.span_n", {config.heads})) sum += span;
    g.results()["output.penalty"] = {{}, {penalty * sum / static_cast<double>(config.heads)}};
    if (g.goes_back("grad_output.y_bcd"))
      priced.extras.penalty = penalty * g.file().reals("grad_output.penalty", {})[0];
  }
  g.run_block(config, false, true, [&](Layout<T>& layout, const BlockCapacity& capacity, const BlockOptions& options) {
    return std::make_unique<DotBlock<Device, T>>(layout, "", priced, capacity, options);
  });
}

// Cases of golden and bench.
struct AdaptiveSpanCases {
  template <class Golden>
  static void add_golden(std::vector<typename Golden::Case>& cases) {
    cases.push_back(
        {"adaptive_span_attention", [](Golden& g) { golden_adaptive_span(g); }, {"heads", "ramp", "penalty"}});
  }
  template <class Bench>
  static void measure(Bench& bench) {
    const Index C = bench.C(), N = bench.N();
    Index* const border_n = bench.copy_of(std::vector<Index>(2 * static_cast<std::size_t>(N)));
    bench.layer("adaptive_span",
                AdaptiveSpanCase{.N = N, .distances = C, .ramp = 32, .reach_n = border_n, .first_n = border_n + N},
                N * C, 3, 1);
  }
};

}  // namespace abh
