// The rows that this feature adds to lists of the core's tests.

#include "tests/harness/bench_rows.hpp"
#include "tests/harness/config_rows.hpp"
#include "tests/harness/flag_pairs.hpp"
#include "tests/harness/network_rows.hpp"
#include "tests/harness/program_rows.hpp"

namespace abh {
namespace {

const Rows<NetworkCase> networks([] {
  NetworkCase mixed = network_case("dot,metric,quadratic,additive", "0", 3, "layers=4 span=5 ramp=2.5 positions=alibi");
  mixed.masked = true;
  mixed.dropout = 0.2;
  return std::vector{network_case("dot", "0", 0, "span=4 ramp=3 positions=none"), mixed,
                     network_case("dot,metric", "0", 0, "span=9 ramp=6 attention_window=4,0 positions=rotary")};
});

const Rows<std::string, FeatureFlags> flags = {"span=6 ramp=3 penalty=0.25"};

const Rows<ConfigFault, ModelConfig> faults = {
    {"causal=0 mixer=dot span=5", "--span: expected 0 where causal is 0 and the mixer dot, found 5"}};

const Rows<FlagNotes> notes = {{"--mixer leap --attention-window 4 --span 3",
                                {"attention-window: no layer is metric, quadratic, dot or bahdanau",
                                 "span: no layer is metric, quadratic or dot"}},
                               {"--mixer leap --ramp 4", {"ramp: no layer is metric, quadratic or dot"}},
                               {"--mixer dot --ramp 4 --penalty 0.1", {"ramp: --span is 0", "penalty: --span is 0"}},
                               {"--mixer dot --ramp 4 --penalty 0.1 --span 3", {}},
                               {"--mixer metric --attention-window 4 --span 3", {}}};

const Rows<PairedFlags> pairs = {PairedFlags{"--mixer dot --span 4 --ramp 2 --penalty 0.3"}};

const Rows<BenchRowsOf> bench = {[](const BenchSizes& s) {
  return both_passes(s, "adaptive_span", s.N * s.C, 3, 1, {.weights = s.N, .wide_out = s.N * s.C});
}};

}  // namespace
}  // namespace abh
