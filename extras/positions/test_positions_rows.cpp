// The rows that this feature adds to lists of the core's tests.

#include "tests/harness/bench_rows.hpp"
#include "tests/harness/config_rows.hpp"
#include "tests/harness/flag_pairs.hpp"
#include "tests/harness/generator_rows.hpp"
#include "tests/harness/golden_case.hpp"
#include "tests/harness/gpu_rows.hpp"
#include "tests/harness/import_case.hpp"
#include "tests/harness/network_rows.hpp"
#include "tests/harness/program_rows.hpp"
#include "tests/harness/weight_order.hpp"

namespace abh {
namespace {

const Rows<NetworkCase> networks([] {
  return std::vector{mixed_case("none", "window=0,2,0,0 rescale=4"),
                     mixed_case("sinusoidal", "window=0,2,0,0 embedding_norm=1"),
                     mixed_case("rotary", "window=0,2,0,0 rescale=4")};
});

const Rows<WeightOrder> weights = {{"dot", "", "rescale=3"}};

// A head of one channel has no deviation.
const Rows<ConfigFault, ModelConfig> faults = {
    {"mixer=dot rescale=1 heads=128", "--rescale: expected at least 2 channels per head, found 1"},
    {"mixer=dot rescale=1 heads=64", "no error"},
    {"rescale=1 heads=128", "no error"}};

const Rows<std::string, ModelConfig> keys = {"positions=rotary rescale=7.5"};

const Rows<Content> golden([] {
  return std::vector{with(dot_inputs(), "positions=rotary rescale=4"), without_table(network_inputs(), "sinusoidal"),
                     without_table(network_inputs(), "rotary")};
});

const Rows<GoldenFault> golden_faults([] {
  return std::vector<GoldenFault>{
      {dot_inputs(), "rescale=-1", "rescale"},
      {dot_inputs(), "heads=6 rescale=1", "--rescale: expected at least 2 channels per head, found 1"},
      {additive_inputs(), "positions=rotary", "expected none or alibi, found \"rotary\""},
      {additive_inputs(), "rescale=1", "metadata rescale: the case does not use it"}};
});

const Rows<std::string, ForPyTorch> in_pytorch = {
    "--mixer metric --positions sinusoidal --conv-groups 2 --conv-kernel 3"};

const Rows<std::string, ForLearning> learning = {"--mixer dot,additive --layers 2 --positions sinusoidal",
                                                 "--mixer dot,additive --layers 2 --positions rotary --rescale 8",
                                                 "--mixer metric,quadratic --layers 2 --positions rotary"};

const Rows<FlagNotes> notes = {
    {"--mixer additive --rescale 3 --positions rotary",
     {"rescale: no layer is dot or leap", "positions rotary: no layer is metric, quadratic or dot"}}};

const Rows<GeneratorCase, FullContext> full = {{"dot", "sinusoidal"}, {"dot,additive", "rotary"}, {"metric", "rotary"}};

const Rows<GeneratorCase, LongPrompt> prompts = {{"additive", "sinusoidal"}};

const Rows<GeneratorCase, EndlessText> endless = {{"additive", "sinusoidal"}, {"additive", "rotary"}};

const Rows<SteppedMixers> stepped([] {
  std::vector<SteppedMixers> rows;
  for (const std::string positions : {"sinusoidal", "rotary", "alibi"}) {
    for (const char* mixers : {"dot,additive", "metric,quadratic"}) {
      rows.push_back({mixers, "window=0,4 rescale=5 positions=" + positions});
    }
  }
  return rows;
});

const Rows<PairedFlags> pairs = {PairedFlags{"--mixer dot --positions rotary"}, PairedFlags{"--positions sinusoidal"}};

const Rows<BenchRowsOf> bench = {
    [](const BenchSizes& s) {
      return both_passes(s, "rotary", 2 * s.rows(), 3, 3,
                         {.in = 2 * s.rows(), .out = 2 * s.rows(), .wide_out = s.C * s.K()});
    },
    [](const BenchSizes& s) {
      return both_passes(s, "rescale", 2 * s.rows(), 6, 7,
                         {.in = 2 * s.rows(), .out = 2 * s.rows(), .wide_out = 2 * s.statistics()});
    }};

}  // namespace
}  // namespace abh
