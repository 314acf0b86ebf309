// The rows that this feature adds to lists of the core's tests.

#include <cmath>

#include "tests/harness/bench_rows.hpp"
#include "tests/harness/config_rows.hpp"
#include "tests/harness/flag_pairs.hpp"
#include "tests/harness/golden_case.hpp"
#include "tests/harness/network_rows.hpp"
#include "tests/harness/program_rows.hpp"

namespace abh {
namespace {

// Patterns, and a layer without one.
const Rows<NetworkCase> networks([] {
  std::vector<NetworkCase> cases;
  for (const char* pattern :
       {"pattern=strided stride=3", "pattern=fixed stride=2 summary=1 part=layers",
        "pattern=strided stride=2 part=layers positions=rotary", "pattern=fixed stride=3 summary=2",
        "pattern=strided stride=2 part=heads", "pattern=fixed stride=2 summary=1 part=heads"}) {
    NetworkCase sparse = network_case("dot,additive,dot", "0", 0, std::string("layers=3 ") + pattern);
    sparse.masked = cases.size() % 2 == 0;
    sparse.dropout = 0.2;
    cases.push_back(sparse);
  }
  return cases;
});

const Rows<ConfigFault, ModelConfig> faults = {
    {"mixer=dot span=5 pattern=strided stride=3", "--span: expected 0 where there is a --pattern, found 5"},
    {"mixer=dot attention_window=5 pattern=strided stride=3",
     "--attention-window: expected 0 where there is a --pattern, found 5"}};

Content sparse_inputs(const std::string& pattern) {
  return inputs(settings("case=sparse_attention heads=2 " + pattern), {{'b', 2}, {'c', 7}, {'d', 5}, {'h', 6}},
                in_and_out + "weight.query_hd weight.key_hd weight.value_hd weight.output_dh");
}

const Rows<Content> golden([] {
  return std::vector{sparse_inputs("pattern=window window=2"), sparse_inputs("pattern=strided stride=3 part=second"),
                     sparse_inputs("pattern=fixed stride=3 summary=2"),
                     sparse_inputs("pattern=fixed stride=2 summary=1 part=heads")};
});

const Rows<GoldenFault> golden_faults([] {
  const Content fixed = sparse_inputs("pattern=fixed stride=3 summary=2");
  std::vector<GoldenFault> all = {
      {fixed, "pattern=x", "metadata pattern: expected strided, fixed or window, found \"x\""},
      {fixed, "", "metadata pattern is missing", "pattern"},
      {fixed, "part=layers", "metadata part: expected merged, first, second or heads, found \"layers\""},
      {fixed, "", "metadata stride is missing", "stride"},
      {fixed, "", "metadata summary is missing", "summary"},
      {fixed, "stride=0", "stride"},
      {sparse_inputs("pattern=window window=2"), "stride=3", "metadata stride: a window has none"}};
  for (const char* bad : {"summary=0", "summary=4", "summary=x", "summary=-1"}) {
    all.push_back({fixed, bad, "summary"});
  }
  return all;
});

const Rows<FlagNotes> notes = {
    {"--mixer metric --pattern strided --stride 3", {"pattern: no layer is dot", "stride: no layer is dot"}}};

const Rows<PairedFlags> pairs = {PairedFlags{"--mixer dot --pattern strided --stride 3"}};

// sees(c, s): position c attends to s, with a stride of 128 and the last 8 positions of a block as its summary.
template <class Sees>
std::vector<BenchRow> patterned(const BenchSizes& s, const std::string& layer, const Sees& sees) {
  double attended = 0;  // pairs of positions
  for (int c = 0; c < static_cast<int>(s.C); ++c) {
    for (int from = 0; from <= c; ++from) attended += sees(c, from);
  }
  BenchArrays arrays = attention_arrays(s);
  arrays.wide_out += s.B * s.N * 128 * std::ceil(s.C / 128);  // log-sum-exp of the second part, in whole blocks
  return both_passes(s, layer, s.B * s.D * attended, 4, 8, arrays);
}

const Rows<BenchRowsOf> bench = {
    [](const BenchSizes& s) -> std::vector<BenchRow> {
      if (s.C <= 128) return {};
      return patterned(s, "attention, strided",
                       [](int c, int from) { return c - from < 128 || (c - from) % 128 == 0; });
    },
    [](const BenchSizes& s) -> std::vector<BenchRow> {
      if (s.C <= 128) return {};
      return patterned(s, "attention, fixed",
                       [](int c, int from) { return c / 128 == from / 128 || from % 128 >= 120; });
    },
    [](const BenchSizes& s) {
      return both_passes(s, "gather_rows", s.rows(), 1, 1, {.in = s.rows(), .out = s.rows()});
    },
    [](const BenchSizes& s) -> std::vector<BenchRow> {
      // The merge reads the log-sum-exp of each part, overwrites it, and writes the merged one.
      const double parts = 2;
      return {{"merge_softmax", "forward", 2 * parts * s.rows(),
               s.T * (parts + 1) * s.rows() + s.A * (2 * parts + 1) * s.statistics()}};
    }};

}  // namespace
}  // namespace abh
