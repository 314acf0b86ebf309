// The rows that this feature adds to lists of the core's tests.

#include "tests/harness/bench_rows.hpp"
#include "tests/harness/config_rows.hpp"
#include "tests/harness/golden_case.hpp"

namespace abh {
namespace {

const Rows<ConfigFault, ModelConfig> faults = {
    {"causal=0 positions=alibi",
     "--positions: alibi needs causal 1 where the mixer is additive, whose weights decay in one direction"},
    {"causal=0 positions=alibi mixer=average", "no error"},
    {"causal=0", "no error"},
    {"causal=0 attention_window=5", "no error"}};

const Rows<Content> golden([] {
  Content content = with(pooling_inputs(), "causal=0");
  content.tokens.clear();
  return std::vector{content};
});

// Equal logits turn the pooling into the mean of all positions.
const Rows<GoldenExample> examples([] {
  Content pooling;
  pooling.metadata = settings("case=additive_pooling causal=0");
  pooling.reals = {{"input.a_bnc", {{2, 1, 3}, {5, 5, 5, -300, -300, -300}}},
                   {"input.x_bnck", {{2, 1, 3, 1}, {2, 4, 9, 2, 4, 9}}},
                   {"output.g_bnck", {{2, 1, 3, 1}, {5, 5, 5, 6.5, 6.5, 6.5}}}};
  pooling.tokens["input.mask_bc"] = {{2, 3}, {1, 1, 1, 0, 1, 1}};
  return std::vector<GoldenExample>{{pooling}};
});

const Rows<GoldenFault> golden_faults([] {
  Content pooling = inputs(settings("case=additive_pooling causal=0"), {{'b', 1}, {'n', 2}, {'c', 3}, {'k', 1}},
                           "input.a_bnc input.x_bnck output.g_bnck");
  pooling.reals["input.slope_n"] = {{2}, {1, 0}};
  return std::vector<GoldenFault>{
      {additive_inputs(), "causal=0 window=0 positions=alibi", "--positions: alibi needs causal 1"},
      {pooling, "", "input.slope_n needs metadata causal 1", "", false}};
});

const Rows<BenchRowsOf> bench = {
    [](const BenchSizes& s) { return both_passes(s, "pooling_bidirectional", s.rows(), 2, 5, pooling_arrays(s)); }};

}  // namespace
}  // namespace abh
