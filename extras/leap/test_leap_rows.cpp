// The rows that this feature adds to lists of the core's tests.

#include "tests/harness/config_rows.hpp"
#include "tests/harness/golden_case.hpp"
#include "tests/harness/weight_order.hpp"

namespace abh {
namespace {

const Rows<WeightOrder> weights = {
    {"leap", "norm_weight_d norm_bias_d query_dd focus_dd key_dd value_dd", "normed_values=1 rescale=3"}};

const Rows<ConfigFault, ModelConfig> faults = {
    {"causal=0 window=5 mixer=leap",
     "--window: expected 0 or at least the context, 64, where causal is 0 and the mixer leap, found 5"},
    {"causal=0 positions=alibi mixer=leap",
     "--positions: alibi needs causal 1 where the mixer is leap, whose weights decay in one direction"},
    {"mixer=leap normed_values=1 heads=128", "--normed-values: expected heads of 2 channels at least, found 1"}};

const Rows<std::string, ModelConfig> keys = {"focus=exp normed_values=1"};

// A network takes every setting.
const Rows<Content> golden([] { return std::vector{with(network_inputs(), "focus=exp")}; });

const Rows<GoldenFault> golden_faults([] {
  return std::vector<GoldenFault>{
      {additive_inputs(), "normed_values=1", "metadata normed_values: the case has no use for it"},
      {additive_inputs(), "focus=exp", "metadata focus: the case has no use for it"}};
});

}  // namespace
}  // namespace abh
