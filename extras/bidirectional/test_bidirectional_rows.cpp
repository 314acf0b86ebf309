// The rows that this feature adds to lists of the core's tests.

#include "tests/harness/config_rows.hpp"

namespace abh {
namespace {

const Rows<ConfigFault, ModelConfig> faults = {
    {"causal=0 positions=alibi",
     "--positions: alibi needs causal 1 where the mixer is additive, whose weights decay in one direction"},
    {"causal=0 positions=alibi mixer=average", "no error"},
    {"causal=0", "no error"},
    {"causal=0 attention_window=5", "no error"}};

}  // namespace
}  // namespace abh
