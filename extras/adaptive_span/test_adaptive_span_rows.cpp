// The rows that this feature adds to lists of the core's tests.

#include "tests/harness/config_rows.hpp"
#include "tests/harness/network_rows.hpp"

namespace abh {
namespace {

const Rows<NetworkCase> networks([] {
  NetworkCase mixed = network_case("dot,metric,quadratic,additive", "0", 3, "layers=4 span=5 ramp=2.5 positions=alibi");
  mixed.masked = true;
  mixed.dropout = 0.2;
  return std::vector{network_case("dot", "0", 0, "span=4 ramp=3 positions=none"), mixed,
                     network_case("dot,metric", "0", 0, "span=9 ramp=6 attention_window=4,0 positions=rotary")};
});

const Rows<ConfigFault, ModelConfig> faults = {
    {"causal=0 mixer=dot span=5", "--span: expected 0 where causal is 0 and the mixer dot, found 5"}};

}  // namespace
}  // namespace abh
