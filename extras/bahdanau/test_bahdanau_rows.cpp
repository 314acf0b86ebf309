// The rows that this feature adds to lists of the core's tests.

#include "tests/harness/bench_rows.hpp"
#include "tests/harness/flag_pairs.hpp"
#include "tests/harness/generator_rows.hpp"
#include "tests/harness/golden_case.hpp"
#include "tests/harness/import_case.hpp"
#include "tests/harness/network_rows.hpp"
#include "tests/harness/program_rows.hpp"
#include "tests/harness/weight_order.hpp"

namespace abh {
namespace {

const Rows<NetworkCase> networks([] { return attention_window_cases("dot,bahdanau,metric,quadratic"); });

const Rows<WeightOrder> weights = {
    {"bahdanau", "norm_weight_d norm_bias_d query_hd key_hd value_hd score_nk output_dh"}};

const Rows<Content> golden([] {
  const std::map<char, Index> sizes = {{'b', 2}, {'c', 4}, {'s', 6}, {'d', 5}, {'e', 3}, {'h', 6}, {'n', 2}, {'k', 3}};
  const std::string names = in_and_out + "weight.query_hd weight.score_nk weight.output_dh ";
  return std::vector{
      inputs(settings("case=bahdanau_attention heads=2"), sizes, names + "weight.key_hd weight.value_hd"),
      inputs(settings("case=bahdanau_attention heads=2"), sizes,
             names + "input.memory_bse weight.key_he weight.value_he")};
});

const Rows<std::string, ForSizes> sizes = {"bahdanau"};

const Rows<std::string, ForLearning> learning = {"--mixer bahdanau"};

const Rows<FlagNotes> notes = {
    {"--mixer bahdanau --positions rotary", {"positions rotary: no layer is metric, quadratic or dot"}},
    {"--mixer bahdanau --positions alibi", {}}};

const Rows<GeneratorCase, WithinContext> within = {{"bahdanau"}};

const Rows<GeneratorCase, EndlessText> endless = {{"bahdanau", "sinusoidal", "5"}};

const Rows<PairedFlags> pairs = {PairedFlags{"--mixer bahdanau"}};

const Rows<BenchRowsOf> bench = {[](const BenchSizes& s) {
  BenchArrays arrays = attention_arrays(s);
  arrays.weights = s.D;
  return both_passes(s, "bahdanau_attention", s.B * s.D * s.pairs(), 7, 20, arrays);
}};

}  // namespace
}  // namespace abh
