#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "apps/golden/golden.hpp"
#include "extras/sparse/gather_rows_case.hpp"
#include "extras/sparse/merge_softmax_case.hpp"
#include "extras/sparse/sparse_attention_case.hpp"
#include "network/mixers.hpp"

namespace abh {

// Block `dot` with a pattern. A window is the first part of a strided pattern; parts are those of layers 0 and 1.
template <class Device, class T>
void golden_sparse(GoldenCases<Device, T>& g) {
  const auto positions = [&](const char* key, Index most) {
    g.file().setting(key);
    return g.file().integer_setting(key, 1, 1, most);
  };
  g.file().setting("heads");
  const GoldenShape x = g.file().shape("input.x_bcd", 3);
  ModelConfig config = g.block_config(x[1], x[2]);
  config.mixer = DotMixer::properties.name;
  config.head_channels = g.head_channels("weight.query_hd", config.heads);
  config.window = "0";
  const bool has_part = g.file().has_setting("part");
  std::string part = "first";
  if (g.choice("pattern", g.file().setting("pattern"), {"strided", "fixed", "window"}) == "window") {
    config.extras.pattern = "strided";
    config.extras.stride = positions("window", largest_context);
    for (const char* key : {"stride", "summary", "part"}) {
      if (g.file().has_setting(key)) g.file().fail(std::string("metadata ") + key + ": a window has none");
    }
  } else {
    config.extras.stride = positions("stride", largest_context);
    if (config.extras.pattern == "fixed") config.extras.summary = positions("summary", config.extras.stride);
    part = has_part ? g.choice("part", g.file().setting("part"), {"merged", "first", "second", "heads"}) : "merged";
  }
  const bool is_alone = part == "first" || part == "second";
  config.extras.part = is_alone ? "layers" : part;
  g.run_block(config, false, true, [&](Layout<T>& layout, const BlockCapacity& capacity, const BlockOptions& options) {
    BlockOptions of_layer = options;
    of_layer.layer = part == "second" ? 1 : 0;
    return std::make_unique<DotBlock<Device, T>>(layout, "", config, capacity, of_layer);
  });
}

// Cases of golden and bench.
struct SparseCases {
  template <class Golden>
  static void add_golden(std::vector<typename Golden::Case>& cases) {
    cases.push_back({"sparse_attention",
                     [](Golden& g) { golden_sparse(g); },
                     {"heads", "pattern", "stride", "summary", "window", "part"}});
  }
  template <class Bench>
  static void measure(Bench& bench) {
    const Index B = bench.B(), C = bench.C(), N = bench.N(), K = bench.K();
    const Index stride = 128, summary = 8;
    if (C > stride) {
      attention(bench, "attention, strided", {.form = Pattern::Form::strided, .stride = stride});
      attention(bench, "attention, fixed", {.form = Pattern::Form::fixed, .stride = stride, .summary = summary});
    }
    bench.layer("gather_rows", GatherRowsCase{.B = B, .P = C, .C = C, .columns = N * K}, B * C * N * K, 1, 1);
    const MergeSoftmaxCase parts{.B = B, .C = C, .N = N, .K = K};
    const double numbers = static_cast<double>(parts.inputs()[0].count() * 2);
    bench.measure(parts, {{"merge_softmax", "forward", 2 * numbers,
                           bench.bytes_of(parts.inputs()) + bench.bytes_of(parts.outputs()) +
                               5 * bench.bytes_of({parts.saved()[0]}),
                           [&](typename Bench::Arrays& a) { parts.forward(bench.device(), a); }}});
  }

 private:
  template <class Bench>
  static void attention(Bench& bench, const std::string& name, const Pattern& pattern) {
    const Index C = bench.C();
    const SparseAttentionCase core{{.B = bench.B(), .C = C, .N = bench.N(), .K = bench.K()},
                                   pattern,
                                   PatternTables::of(pattern, C, [&](const char*, Index count, const auto& value) {
                                     std::vector<Token> table;
                                     for (Index i = 0; i < count; ++i) table.push_back(static_cast<Token>(value(i)));
                                     return bench.copy_of(table);
                                   })};
    Index pairs = 0;  // of both parts, merged
    for (Index c = 0; c < C; ++c) {
      const Index before = c / pattern.stride, own = c % pattern.stride + 1;
      pairs += pattern.form == Pattern::Form::strided ? std::min(pattern.stride, c + 1) + before
                                                      : own + before * pattern.summary;
    }
    bench.layer(name, core, core.B * core.N * core.K * pairs, 4, 8);
  }
};

}  // namespace abh
