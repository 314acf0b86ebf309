// The rows that this feature adds to lists of the core's tests.

#include <cmath>

#include "tests/harness/config_rows.hpp"
#include "tests/harness/golden_case.hpp"
#include "tests/harness/memory_rows.hpp"
#include "tests/harness/program_rows.hpp"

namespace abh {
namespace {

const Rows<MemoryCase> memory([] {
  std::vector<MemoryCase> cases;
  for (MemoryCase each : memory_cases()) {
    each.chunk = each.C / 2;
    if (each.chunk > 0) cases.push_back(each);
  }
  return cases;
});

const Rows<ScratchCase, ForSmallSteps> small = {
    {"additive", "0", 24, 3, 3, 0, 3, 9, true, false, 1, 4},
    {"quadratic", "0", 24, 2, 0, 0, 3, 7, false, true, 1, 4},
};

const Rows<ScratchCase, ForLongSteps> longer = {
    {"additive", "0", 32, 1, 3, 0, 3, 1100, false, true, 2, 4},
    {"dot", "0", 24, 24, 0, 0, 3, 70, false, false, 2, 4},
};

const Rows<ConfigFault, TrainingConfig> faults = {
    {"chunk=-1", "--chunk: expected 0 to 4194304, found -1"},
    {"truncated=1", "--truncated: expected a length of chunks, --chunk, found --chunk 0"},
    {"chunk=3 truncated=1", "no error"}};

const Rows<std::string, TrainingConfig> keys = {"chunk=7 truncated=1"};

const Rows<Content> golden([] {
  Content chunk = inputs(settings("case=additive_pooling_chunk"), {{'b', 2}, {'n', 3}, {'c', 4}, {'k', 2}},
                         "input.a_bnc input.x_bnck input.zeta_bn input.average_bnk grad_output.g_bnck "
                         "grad_output.zeta_bn grad_output.average_bnk");
  Content decaying = chunk;
  decaying.reals["input.slope_n"] = {{3}, {0, 0.25, 3}};
  return std::vector{chunk, decaying};
});

// Three positions of weight 1 with an average of 2 have gone before.
const Rows<GoldenExample> examples([] {
  Content chunk;
  chunk.metadata = settings("case=additive_pooling_chunk");
  chunk.reals = {{"input.zeta_bn", {{1, 1}, {std::log(3)}}}, {"input.average_bnk", {{1, 1, 1}, {2}}},
                 {"input.a_bnc", {{1, 1, 2}, {0, 0}}},       {"input.x_bnck", {{1, 1, 2, 1}, {6, 8}}},
                 {"output.g_bnck", {{1, 1, 2, 1}, {3, 4}}},  {"output.zeta_bn", {{1, 1}, {std::log(5)}}},
                 {"output.average_bnk", {{1, 1, 1}, {4}}}};
  return std::vector<GoldenExample>{{chunk}};
});

const Rows<GoldenFault> golden_faults([] {
  return std::vector<GoldenFault>{{network_inputs(), "chunk=2", "metadata chunk: the case does not use it"}};
});

const Rows<FlagNotes> notes = {
    {"--chunk 8 --truncated 1 --mixer leap", {"truncated: --chunk is not shorter than --context"}},
    {"--chunk 4 --truncated 1 --mixer leap", {}}};

}  // namespace
}  // namespace abh
