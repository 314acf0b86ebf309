#pragma once

#include <algorithm>
#include <vector>

#include "apps/golden/golden.hpp"
#include "extras/transformer_xl/relative_attention_case.hpp"
#include "network/mixers.hpp"

namespace abh {

// One segment and the rows before it as a separate chunk: sequences run one after another.
template <class Device, class T>
void golden_transformer_xl(GoldenCases<Device, T>& g) {
  g.file().setting("heads");
  const GoldenShape x = g.file().shape("input.x_bcd", 3);
  const Index B = x[0], C = x[1], D = x[2];
  const bool has_memory = g.file().has("input.memory_bsd");
  const Index S = has_memory ? g.file().shape("input.memory_bsd", 3)[1] : 0;
  ModelConfig config = g.block_config(S + C, D);
  config.mixer = TransformerXlMixer::properties.name;
  config.head_channels = g.head_channels("weight.query_hd", config.heads);
  config.extras.segment = std::max({S, C, Index{1}});
  config.extras.memory = S;
  check_model(config);
  const auto make = [&](Layout<T>& layout) {
    return TransformerXlBlock<Device, T>(layout, "", config,
                                         {.B = 1, .C = std::max(S, C), .positions = 0, .sequence = S + C},
                                         {.norm = false, .residual = false});
  };
  Layout<T> measured;
  make(measured);
  const auto bytes_of_carried = static_cast<Index>(measured.carried_bytes());
  GoldenArray<Device, T> weights(g.device(), measured.weight_count());
  GoldenArray<Device, Accum<T>> gradients(g.device(), measured.weight_count());
  DeviceMemory activations(g.device().memory(), measured.activation_bytes());
  DeviceMemory carried(g.device().memory(), measured.carried_bytes()),
      entered(g.device().memory(), measured.carried_bytes());
  Layout<T> layout(measured, weights.data(), gradients.data(), activations.as<std::byte>(), nullptr,
                   carried.as<std::byte>());
  TransformerXlBlock<Device, T> block = make(layout);
  layout.write_constants(g.device());
  g.read_weights(weights.data(), layout.parameters());

  GoldenArray<Device, T> x_bcd = g.read("input.x_bcd", x), y_bcd = g.template zeros<T>(x),
                         scratch_sd = g.template zeros<T>({S, D});
  GoldenArray<Device, T> memory_bsd = has_memory ? g.read("input.memory_bsd", {B, S, D}) : g.template zeros<T>({0});
  const bool backward = g.goes_back("grad_output.y_bcd");
  GoldenArray<Device, T> d_x_bcd = backward ? g.read("grad_output.y_bcd", x) : g.template zeros<T>(x);
  for (Index b = 0; b < B; ++b) {
    const Index first = b * C * D;
    const PassContext before{.B = 1, .C = S, .sequence = S + C}, pass{.B = 1, .C = C, .first_c = S, .sequence = S + C};
    if (S > 0) block.forward(g.device(), scratch_sd.data(), memory_bsd.data() + b * S * D, before);
    g.device().copy(entered.as<std::byte>(), carried.as<std::byte>(), bytes_of_carried);
    block.forward(g.device(), y_bcd.data() + first, x_bcd.data() + first, pass);
    if (!backward) continue;
    g.device().copy(carried.as<std::byte>(), entered.as<std::byte>(), bytes_of_carried);
    block.backward(g.device(), d_x_bcd.data() + first, x_bcd.data() + first, pass);
  }
  g.give("output.y_bcd", x, y_bcd.data());
  if (!backward) return;
  g.give("grad_input.x_bcd", x, d_x_bcd.data());
  g.give_gradients(gradients.data(), layout.parameters());
}

// Cases of golden and bench.
struct TransformerXlCases {
  template <class Golden>
  static void add_golden(std::vector<typename Golden::Case>& cases) {
    cases.push_back({"transformer_xl_attention", [](Golden& g) { golden_transformer_xl(g); }, {"heads", "clamp"}});
  }
  template <class Bench>
  static void measure(Bench& bench) {
    const Index B = bench.B(), C = bench.C(), N = bench.N(), K = bench.K();
    const Index segment = (C + 1) / 2;  // two; the first is the memory of the second: every pair
    bench.layer("relative_attention",
                RelativeAttentionCase{{.B = B, .C = C, .N = N, .K = K}, segment, segment, 2 * segment},
                B * N * K * C * (C + 1) / 2, 6, 16);
  }
};

}  // namespace abh
