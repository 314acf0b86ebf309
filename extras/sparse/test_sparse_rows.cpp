// The rows that this feature adds to lists of the core's tests.

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

}  // namespace
}  // namespace abh
