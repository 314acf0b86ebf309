// The rows that this feature adds to lists of the core's tests.

#include "tests/harness/network_rows.hpp"

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

}  // namespace
}  // namespace abh
