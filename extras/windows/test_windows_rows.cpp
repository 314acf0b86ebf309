// The rows that this feature adds to lists of the core's tests.

#include "tests/harness/bench_rows.hpp"
#include "tests/harness/config_rows.hpp"
#include "tests/harness/generator_rows.hpp"
#include "tests/harness/golden_case.hpp"
#include "tests/harness/gpu_rows.hpp"
#include "tests/harness/import_case.hpp"
#include "tests/harness/memory_rows.hpp"
#include "tests/harness/program_rows.hpp"

namespace abh {
namespace {

const Rows<NetworkCase> networks([] {
  std::vector<NetworkCase> cases = mixer_cases("2,3");
  for (const char* positions : {"learned", "alibi"}) cases.push_back(mixed_case(positions, "window=0,2,0,0"));
  return cases;
});

const Rows<NetworkCase, ForSteps> steps([] {
  std::vector<NetworkCase> cases;
  for (const MixerProperties& mixer : Mixers::properties) {
    for (const std::string& positions : all_positions()) {
      if (mixer.has_window) cases.push_back(network_case(mixer.name, "0,4", 0, "positions=" + positions));
    }
  }
  return cases;
});

const Rows<NetworkCase, ForScratch> scratch([] {
  std::vector<NetworkCase> cases;
  for (const MixerProperties& mixer : Mixers::properties) {
    for (const Index channels : {6, 10, 12, 14, 18, 20}) {
      if (mixer.has_window) cases.push_back(case_for_scratch(mixer.name, "3,0", channels));
    }
  }
  return cases;
});

const Rows<MemoryCase> memory([] {
  std::vector<MemoryCase> cases;
  for (const MixerProperties& mixer : Mixers::properties) {
    for (const Index groups : memory_conv_groups) {
      const std::string changes = std::string("window=8 positions=") + (groups < 1 ? "rotary" : "sinusoidal");
      for (const MemoryCase& each : memory_cases_of(mixer, groups, changes)) {
        cases.push_back(each);
        cases.push_back(each);
        cases.back().chunk = each.C / 2;
      }
    }
  }
  return cases;
});

const Rows<ScratchCase, ForSmallSteps> small = {
    {"additive", "4", 24, 2, 0, 0, 2, 9, false, true},
    {"additive", "1,7", 20, 5, 2, 1, 1, 13, false, false},
    {"additive,dot", "3", 16, 2, 5, 4, 2, 8, false, true},
};

const Rows<ScratchCase, ForLongSteps> longer = {
    {"additive", "256", 32, 2, 0, 0, 1, 600, false, false, 1},
    {"additive", "500", 16, 1, 0, 0, 2, 700, false, true, 2},
    {"additive", "300", 160, 1, 0, 0, 1, 600, false, false, 3},
    {"additive", "128", 32, 16, 0, 0, 1, 520, true, false, 1},
    {"additive", "200", 8, 2, 3, 1, 9, 400, false, false, 2},
    {"additive,dot", "256", 48, 3, 5, 6, 1, 520, true, true, 3},
    {"metric,additive", "65", 64, 4, 7, 0, 2, 129, true, false, 3},
};

const Rows<ConfigFault, ModelConfig> faults = {
    {"window=wide", "--window: expected whole numbers, 0 for a global window, or a comma list of them, found \"wide\""},
    {"causal=0 window=5",
     "--window: expected 0 or at least the context, 64, where causal is 0 and the mixer additive, found 5"},
    {"causal=0 window=5 mixer=average",
     "--window: expected 0 or at least the context, 64, where causal is 0 and the mixer average, found 5"},
    {"causal=0 window=64", "no error"},
    {"mixer=dot,additive,dot,dot window=5,0,5,5 causal=0", "no error"}};

const Rows<std::string, ModelConfig> keys = {"window=3,0"};

const Rows<Content> golden([] {
  return std::vector{with(pooling_inputs(), "window=2"), with(decaying_pooling_inputs(), "window=2"),
                     with(additive_inputs(), "window=3"), with(network_inputs(), "window=0,2")};
});

const Rows<GoldenFault> golden_faults([] {
  std::vector<GoldenFault> all = {
      {additive_inputs(), "causal=0 window=1", "--window: expected 0"},
      {dot_inputs(), "window=2", "metadata window: the case does not use it"},
      {inputs(settings("case=additive_pooling causal=0"), {{'b', 1}, {'n', 2}, {'c', 3}, {'k', 1}},
              "input.a_bnc input.x_bnck output.g_bnck"),
       "window=2", "--window: expected 0", "", false}};
  for (const char* window : {"window=-1", "window=x", "window=1,2", "window="}) {
    all.push_back({additive_inputs(), window, "window"});
  }
  return all;
});

const Rows<ImportCase> imported = {
    {"--mixer additive --additive-values own --additive-projection 1 --additive-skip normed --window 3",
     "ffn_bias conv_kernel conv_groups values projection skip window"}};

const Rows<std::string, ForPyTorch> in_pytorch = {"--tokenizer byte --mixer additive --window 3"};

const Rows<Refusal> refusals = {{"train", {"--window", "4,x", "--layers", "2"}, {"--window", "whole number", "x"}},
                                {"train", {"--window", "-4"}, {"--window", "-4"}},
                                {"train", {"--window", "4,4,4", "--layers", "2"}, {"--window", "1 or 2 entries"}},
                                {"train", {"--window", "9223372036854775808"}, {"--window", "9223372036854775808"}}};

const Rows<std::string, TooLarge> too_large = {"--window 4194303 --channels 262144 --positions none"};

const Rows<std::string, ForLearning> learning = {
    "--mixer additive --window 3", "--mixer additive --window 100 --positions none",
    "--mixer dot,additive,metric,quadratic --layers 4 --window 0,2,0,0 --conv-groups 2"};

const Rows<std::string, Extreme> extreme = {"--window 1"};

const Rows<std::string, OtherModel> other_models = {"--window 3"};

const Rows<GeneratorCase, LongPrompt> prompts = {{"additive", "none", "5,300"}, {"additive", "sinusoidal", "5,300"}};

const Rows<GeneratorCase, EndlessText> endless = {{"additive", "none", "5"},
                                                  {"additive", "sinusoidal", "5"},
                                                  {"additive", "alibi", "5"},
                                                  {"dot,quadratic", "alibi", "5"}};

const Rows<std::string, ThreeMixers> three = {"window=5,0,0"};

const Rows<SteppedMixers> stepped = {{"additive", "window=0,4"}, {"average", "window=0,4"}, {"leap", "window=0,4"}};

const Rows<BenchRowsOf> bench = {
    [](const BenchSizes& s) { return both_passes(s, "pooling_sliding_window", s.rows(), 9, 14, pooling_arrays(s)); }};

}  // namespace
}  // namespace abh
