// The rows that this feature adds to lists of the core's tests.

#include <cmath>

#include "tests/harness/bench_rows.hpp"
#include "tests/harness/flag_pairs.hpp"
#include "tests/harness/golden_case.hpp"
#include "tests/harness/import_case.hpp"
#include "tests/harness/weight_order.hpp"

namespace abh {
namespace {

// No memory in the settings, because no gradient flows into it.
const Rows<MixerNeeds> needs = {{"segments", "positions=none segment=3", "--positions none --segment 3 --memory 5"}};
const Rows<std::string, FeatureFlags> flags = {"segment=5 memory=7 clamp=9"};

const Rows<WeightOrder> weights = {
    {"transformer_xl",
     "norm_weight_d norm_bias_d query_hd key_hd value_hd position_hd content_bias_nk position_bias_nk output_dh"}};

const Rows<Content> golden([] {
  std::vector<Content> contents;
  for (const std::string memory : {"", " input.memory_bsd"}) {
    contents.push_back(
        inputs({{"case", "transformer_xl_attention"}, {"heads", "2"}, {"clamp", memory.empty() ? "0" : "3"}},
               {{'b', 2}, {'c', 4}, {'s', 6}, {'d', 4}, {'h', 6}, {'n', 2}, {'k', 3}},
               in_and_out +
                   "weight.query_hd weight.key_hd weight.value_hd weight.position_hd weight.content_bias_nk "
                   "weight.position_bias_nk weight.output_dh" +
                   memory));
  }
  return contents;
});

const Rows<ModelConfig, ForPython> in_python([] {
  return std::vector{
      changed(model_for_python("transformer_xl"), "segment=2 memory=5 clamp=3 head_channels=5 conv_kernel=2")};
});

const Rows<PairedFlags> pairs = {PairedFlags{"--mixer transformer_xl --segment 4 --memory 4"}};

const Rows<BenchRowsOf> bench = {[](const BenchSizes& s) {
  BenchArrays arrays = attention_arrays(s);
  arrays.in += 2 * std::ceil(s.C / 2) * s.D;  // one row per distance, in a segment and its memory
  arrays.weights = 2 * s.D;
  return both_passes(s, "relative_attention", s.B * s.D * s.pairs(), 6, 16, arrays);
}};

}  // namespace
}  // namespace abh
