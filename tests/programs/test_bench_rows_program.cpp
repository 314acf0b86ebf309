// The flops and bytes of every row of bench, computed again from the sizes. A build of some tests (ONLY_TESTS) also
// needs the test_*_rows.cpp of features: they hold the rows of their layers.

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/harness/bench_rows.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/lines.hpp"
#include "tests/harness/pattern.hpp"
#include "tests/harness/program.hpp"

namespace abh {
namespace {

using All = std::vector<BenchRow>;

All linear(const BenchSizes& s, const std::string& name, double I, double O) {
  return both_passes(s, name, s.B * s.C * I * O, 2, 4,
                     {.in = s.B * s.C * I, .weights = O * I + O, .out = s.B * s.C * O});
}

// bench does not count what a backward pass computes again: of its 16 flops per element layernorm repeats 2, and of the
// 10 flops per pair and channel attention repeats 2, the scores.
All layers_of_core(const BenchSizes& s) {
  const double BC = s.B * s.C, D = s.D, rows = s.rows(), statistics = s.statistics(), taps = 4, near = 256;
  const BenchArrays attention = attention_arrays(s);
  BenchArrays alibi = attention, decay = pooling_arrays(s);
  alibi.wide_out += s.N * s.C;
  decay.wide_out += s.N;
  std::vector<All> all = {
      linear(s, "linear, qkv", D, 3 * D),
      linear(s, "linear, up", D, s.F),
      linear(s, "linear, down", s.F, D),
      linear(s, "linear, logits", D, s.V),
      both_passes(s, "layernorm", rows, 8, 14, {.in = rows, .weights = 2 * D, .out = rows, .wide_out = 2 * BC}),
      both_passes(s, "gelu", BC * s.F, 38, 38, {.in = BC * s.F, .out = BC * s.F}),
      both_passes(s, "dropout", rows, 1, 1, {.in = rows, .out = rows}),
      both_passes(s, "embedding", rows, 1, 2, {.weights = (s.V + s.C) * D, .out = rows}),
      both_passes(s, "causal_conv", rows * taps, 2, 4, {.in = rows, .weights = D * taps, .out = rows}),
      both_passes(s, "pooling_logits", rows, 2, 4, {.in = rows, .weights = D, .wide_out = statistics}),
      both_passes(s, "pooling", rows, 3, 6, pooling_arrays(s)),
      both_passes(s, "pooling_decay", rows, 3, 6, decay),
      both_passes(s, "gate", rows, 2, 4, {.in = 2 * rows, .out = rows}),
      both_passes(s, "attention", s.B * D * s.pairs(), 4, 8, attention),
      both_passes(s, "attention, alibi", s.B * D * s.pairs(), 4, 8, alibi),
      both_passes(s, "metric_key", rows * s.K(), 2, 4, {.in = rows, .weights = D * (s.K() + 1) / 2, .out = rows}),
      both_passes(s, "cross_entropy", BC * s.V, 20, 20, {.in = BC * s.V, .wide_out = 1 + 2 * BC}),
  };
  if (s.C > near) {
    const double hidden = (s.C - near) * (s.C - near + 1) / 2;  // pairs that are too far apart
    all.push_back(both_passes(s, "attention, window of 256", s.B * D * (s.pairs() - hidden), 4, 8, attention));
  }
  All joined;
  for (const All& rows_of_one : all) joined.insert(joined.end(), rows_of_one.begin(), rows_of_one.end());
  return joined;
}

// Each pass reads the inputs of all its layers and writes their outputs; what passes between the layers stays in the
// kernel, unless the other pass needs it. Flops: those of the layers, one per element for a residual or another sum.
All joined_layers(const BenchSizes& s) {
  const double BC = s.B * s.C, D = s.D, rows = s.rows(), row_bytes = s.T * rows, statistic_bytes = s.A * s.statistics();
  const double taps = 4, mean_and_rstd = 2 * BC * s.A;
  const double norm_parts = 3 * 264 * 2 * D, bias_parts = 128 * (s.F + D), pool_parts = 2 * 64 * D;
  const double parts = s.layers * (norm_parts + bias_parts + pool_parts), sums = s.layers * (6 * D + s.F + D + 2 * D);
  return {
      {"causal_conv, dropout", "forward", (2 * taps + 1 + 1) * rows, 3 * row_bytes + s.T * taps * D},
      {"causal_conv, dropout", "backward", (4 * taps + 1) * rows, 3 * row_bytes + (s.T + s.A) * taps * D},
      // Forward reads the residual, the pooled rows and the gate, and writes the new residual and its norm.
      {"gate_layernorm", "forward", (2 + 1 + 8) * rows, 5 * row_bytes + mean_and_rstd},
      // Backward reads the residual, the pooled rows, the gate and two gradients, and writes three gradients.
      {"gate_layernorm", "backward", (14 + 1 + 4) * rows, 8 * row_bytes + mean_and_rstd},
      {"pooling and logits", "forward", (2 + 3) * rows, 2 * row_bytes + 3 * statistic_bytes},
      {"pooling and logits", "backward", (4 + 6) * rows, 4 * row_bytes + 4 * statistic_bytes},
      {"pooling, adding", "backward", (4 + 6 + 1) * rows, 5 * row_bytes + 4 * statistic_bytes},
      {"gelu, row sums", "backward", (38 + 1) * BC * s.F, 3 * s.T * BC * s.F},
      {"dropout, row sums", "backward", (1 + 1) * rows, 3 * row_bytes},
      {"partial sums", "backward", parts, s.A * (parts + 2 * sums)},
  };
}

// The model has the mixer dot, a depthwise convolution of four taps, and the table of tokens as its output layer.
All optimizers(const BenchSizes& s) {
  const double D = s.D, conv = 2 * D + 4 * D, dot = 2 * D + 4 * D * D, ffn = 2 * D + 2 * D * s.F + s.F + D;
  const double weights = (s.V + s.C) * D + 2 * D + s.layers * (conv + dot + ffn), matrices = s.layers * D * s.F;
  // Bytes per weight: an update reads and writes the exact weight, and writes its rounded copy if there is one.
  const double exact = 2 * s.A + (s.T < s.A ? s.T : 0), moment = 2 * s.A, gradient = s.A;
  return {{"global_norm", "step", 2 * weights, gradient * weights},
          {"adamw", "step", 15 * weights, (exact + 2 * moment + gradient) * weights},
          {"weight_average", "step", 3 * weights, 3 * s.A * weights},
          {"muon, up", "step", 5 * s.layers * 2 * D * (2 * D * s.F + D * D), (exact + moment + gradient) * matrices}};
}

// Compares the rows of a run with these sizes, in any order.
void check_rows(const BenchSizes& s, const Arguments& device) {
  const TestFolder folder;
  const std::string json = folder / "bench.json";
  const auto number = [](double value) { return std::to_string(static_cast<long>(value)); };
  require_success(run_program_of_build(
      "bench", device + Arguments{"--layers", number(s.layers), "--channels", number(s.D), "--heads", number(s.N),
                                  "--context", number(s.C), "--batch", number(s.B), "--mixer", "dot", "--threads", "1",
                                  "--seconds", "0", "--json", json}));
  std::map<std::pair<std::string, std::string>, BenchRow> expected;
  std::vector<All> lists = {layers_of_core(s), optimizers(s)};
  if (s.joins_layers) lists.push_back(joined_layers(s));
  for (const BenchRowsOf& of_feature : Rows<BenchRowsOf>::all()) lists.push_back(of_feature(s));
  for (const All& list : lists) {
    for (const BenchRow& row : list) expected[{row.layer, row.pass}] = row;
  }
  for (const std::string& line : lines_of(read_bytes(json))) {
    if (!contains(line, "\"layer\"")) continue;
    INFO(line);
    const Parts row = whole_match(line,
                                  " *\\{\"layer\": \"([^\"]*)\", \"pass\": \"([^\"]*)\".*\"flops\": ([-+.e0-9]+),"
                                  ".*\"bytes\": ([-+.e0-9]+),.*");
    REQUIRE(row.size() == 5);
    const auto found = expected.find({row[1], row[2]});
    if (found == expected.end()) {
      FAIL_CHECK("bench prints a row that the test does not expect");
      continue;
    }
    CHECK(std::stod(row[3]) == found->second.flops);
    CHECK(std::stod(row[4]) == found->second.bytes);
    expected.erase(found);
  }
  for (const auto& [name, row] : expected) FAIL_CHECK("bench prints no row " << row.layer << ", " << row.pass);
}

}  // namespace

TEST_CASE("programs: bench counts the flops and bytes of every layer on the CPU", "[programs][bench_program]") {
  check_rows({.B = 2, .C = 261, .D = 15, .N = 3, .F = 60, .V = 65, .layers = 2, .T = 4, .A = 4}, words("--device cpu"));
}

#if defined(ABH_EMULATOR)
TEST_CASE("programs: bench counts the flops and bytes of every layer on a GPU", "[programs][bench_program][gpu]") {
  check_rows({.B = 2, .C = 37, .D = 15, .N = 3, .F = 60, .V = 65, .layers = 3, .T = 2, .A = 4, .joins_layers = true},
             words("--device emulated --type bf16"));
}
#endif

}  // namespace abh
