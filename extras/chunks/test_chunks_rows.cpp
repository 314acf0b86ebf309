// The rows that this feature adds to lists of the core's tests.

#include "tests/harness/config_rows.hpp"
#include "tests/harness/memory_rows.hpp"

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

}  // namespace
}  // namespace abh
