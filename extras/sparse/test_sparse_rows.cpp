// The rows that this feature adds to lists of the core's tests.

#include "tests/harness/config_rows.hpp"
#include "tests/harness/network_rows.hpp"

namespace abh {
namespace {

// Patterns, with a layer that has none.
const Rows<NetworkCase> networks([] {
  std::vector<NetworkCase> cases;
  for (const char* pattern :
       {"pattern=strided stride=3", "pattern=fixed stride=2 summary=1 part=layers",
        "pattern=strided stride=2 part=layers positions=rotary", "pattern=fixed stride=3 summary=2",
        "pattern=strided stride=2 part=heads", "pattern=fixed stride=2 summary=1 part=heads"}) {
    NetworkCase sparse = network_case("dot,additive,dot", "0", 0, std::string("layers=3 ") + pattern);
    sparse.masked = cases.size() % 2 == 0;
    sparse.dropout = 0.2;
    cases.push_back(sparse);
  }
  return cases;
});

const Rows<ConfigFault, ModelConfig> faults = {
    {"mixer=dot span=5 pattern=strided stride=3", "--span: expected 0 where there is a --pattern, found 5"},
    {"mixer=dot attention_window=5 pattern=strided stride=3",
     "--attention-window: expected 0 where there is a --pattern, found 5"}};

}  // namespace
}  // namespace abh
