// The rows that this feature adds to lists of the core's tests.

#include <cmath>

#include "tests/harness/bench_rows.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/config_rows.hpp"
#include "tests/harness/flag_pairs.hpp"
#include "tests/harness/generator_rows.hpp"
#include "tests/harness/golden_case.hpp"
#include "tests/harness/gpu_rows.hpp"
#include "tests/harness/import_case.hpp"
#include "tests/harness/program_rows.hpp"
#include "tests/harness/shown_rows.hpp"
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
    {"mixer=leap normed_values=1 heads=128", "--normed-values: expected at least 2 channels per head, found 1"}};

const Rows<std::string, ModelConfig> keys = {"focus=exp normed_values=1"};

// A network takes every setting.
const Rows<Content> golden([] { return std::vector{with(network_inputs(), "focus=exp")}; });

const Rows<GoldenFault> golden_faults([] {
  return std::vector<GoldenFault>{
      {additive_inputs(), "normed_values=1", "metadata normed_values: the case does not use it"},
      {additive_inputs(), "focus=exp", "metadata focus: the case does not use it"}};
});

const Rows<ImportCase> imported = {
    {"--mixer leap --leap-focus exp --rescale 4 --normed-values 1 --window 3 --positions alibi --heads 1",
     "ffn_bias conv_kernel conv_groups context positions window focus rescale normed_values"}};

const Rows<ModelConfig, ForPython> in_python([] {
  std::vector<ModelConfig> configs;
  for (const MixerProperties& mixer : Mixers::properties) {
    if (mixer.takes("segments") || mixer.takes("hashing")) continue;
    configs.push_back(changed(model_for_python(mixer.name),
                              "positions=alibi alibi_slopes=interleaved window=2,0 values=own projection=1 skip=normed "
                              "focus=exp rescale=2.5 normed_values=1 conv_kernel=3 conv_groups=2 ffn_bias=0 "
                              "embedding_norm=1 logit_bias=1 final_norm=0 logit_scale=0.5"));
  }
  return configs;
});

const Rows<std::string, ForPythonOfOurs> of_ours = {"leap"};

const Rows<std::string, ForPyTorch> in_pytorch = {"--mixer dot,leap --layers 2 --positions alibi --rescale 4"};

const Rows<FlagNotes> notes = {
    {"--mixer dot --window 4 --leap-focus exp --normed-values 1",
     {"window: no layer is additive, leap or average", "leap-focus: no layer is leap",
      "normed-values: no layer is leap"}},
    {"--mixer leap --additive-values own --additive-projection 1 --additive-skip normed",
     {"additive-values: no layer is additive", "additive-projection: no layer is additive",
      "additive-skip: no layer is additive"}},
    {"--mixer average,identity --layers 2 --positions alibi",
     {"heads: no layer is additive, metric, quadratic, dot, bahdanau, transformer_xl, lsh or leap",
      "positions alibi: no layer is additive, metric, quadratic, dot, bahdanau or leap"}},
    {"--mixer leap,dot --layers 2 --window 4 --rescale 3 --positions rotary --leap-focus exp", {}}};

const Rows<GeneratorCase, LongPrompt> prompts = {{"leap,average", "none", "0,7"},
                                                 {"leap,average", "sinusoidal", "0,7"}};

const Rows<std::string, FiveMixers> five = {"additive,dot,metric,quadratic,leap"};

const Rows<ShownPooling> poolings = {{"leap", "weight_bncs", "key_bcd", "pooled_key_bcd"},
                                     {"leap", "weight_bncs", "value_bcd", "pooled_value_bcd"}};

// The output is the gated pooled value plus the residual.
const Rows<ShownBlock> shown_blocks = {
    {"leap", [](const auto& shown) {
       const std::vector<double>& passed_bcn = shown.at("blocks.0.mixer.passed_bcn");
       for (std::size_t i = 0; i < 2 * 9 * 12; ++i) {
         const double value = shown.at("blocks.0.mixer.pooled_value_bcd")[i];
         const double out = shown.at("x_bcd")[i] + passed_bcn[i / 12 * 2 + i % 12 / 6] * value;
         CHECK_FALSE(!(std::abs(out - shown.at("blocks.0.mixer.out_bcd")[i]) <= 1e-5));
       }
     }}};

const Rows<PairedFlags> pairs = {PairedFlags{"--mixer leap --window 3"}};

const Rows<BenchRowsOf> bench = {
    [](const BenchSizes& s) {
      return both_passes(s, "leap_logits", s.rows(), 2, 3, {.in = 2 * s.rows(), .wide_out = s.statistics()});
    },
    [](const BenchSizes& s) {
      return both_passes(s, "leap_gate", s.rows(), 4, 10,
                         {.in = 3 * s.rows(), .wide_in = s.statistics(), .out = s.rows(), .wide_out = s.statistics()});
    }};

}  // namespace
}  // namespace abh
