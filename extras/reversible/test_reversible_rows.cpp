// The rows that this feature adds to lists of the core's tests.

#include "extras/seq2seq/encoder_case.hpp"
#include "tests/harness/bench_rows.hpp"
#include "tests/harness/config_rows.hpp"
#include "tests/harness/flag_pairs.hpp"
#include "tests/harness/golden_case.hpp"

namespace abh {
namespace {

// Two streams: an even and an odd number of blocks, with a source and without.
const Rows<NetworkCase> networks([] {
  NetworkCase undone = network_case("additive,dot,leap,bahdanau", "0,0,3,0", 3,
                                    "layers=4 conv_groups=0 reversible=1 positions=alibi embedding_norm=1 values=own");
  undone.masked = true;
  undone.dropout = 0.2;
  undone.label_smoothing = 0.1;
  NetworkCase hashing = network_case("additive,lsh", "0,0", 0, "reversible=1 channels=8");
  hashing.masked = true;
  NetworkCase translating = encoder_case("dot,additive,metric", 1, 2, "reversible=1 conv_kernel=2 embeddings=target");
  translating.dropout = 0.2;
  return std::vector{hashing,
                     undone,
                     network_case("metric", "0", 2, "layers=1 reversible=1 positions=rotary final_norm=0"),
                     network_case("average,identity,quadratic", "0", 0, "layers=3 reversible=1 logit_bias=1"),
                     network_case("transformer_xl", "0", 0, "reversible=1 positions=none segment=3 channels=8"),
                     network_case("dot,additive", "0", 0, "reversible=1 positions=alibi span=3 ramp=2"),
                     translating};
});

const Rows<ConfigFault, ModelConfig> faults = {
    {"reversible=1", "no error"},
    {"reversible=1 norm=post", "--reversible: expected --norm pre, found post"},
    {"reversible=1 skip=normed", "--reversible: expected --additive-skip stream, found normed"}};

Content reversible_inputs() { return with(network_inputs(), "case=reversible_language_model"); }

const Rows<Content> golden([] { return std::vector{reversible_inputs(), with(reversible_inputs(), "chunk=3")}; });

const Rows<GoldenFault> golden_faults([] {
  return std::vector<GoldenFault>{
      {reversible_inputs(), "skip=normed", "--reversible: expected --additive-skip stream, found normed"},
      {reversible_inputs(), "norm=post", "--reversible: expected --norm pre, found post"},
      {reversible_inputs(), "chunk=-1", "chunk"},
      {reversible_inputs(), "truncated=1", "metadata truncated: the case does not use it"}};
});

const Rows<PairedFlags> pairs = {PairedFlags{"--reversible 1 --layers 2"}};

const Rows<BenchRowsOf> bench = {[](const BenchSizes& s) {
  return both_passes(s, "weighted_sum", s.rows(), 3, 2, {.in = 2 * s.rows(), .out = s.rows()});
}};

}  // namespace
}  // namespace abh
