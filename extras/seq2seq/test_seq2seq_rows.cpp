// The rows that this feature adds to lists of the core's tests.

#include "extras/seq2seq/encoder_case.hpp"
#include "tests/harness/bench_rows.hpp"
#include "tests/harness/program_rows.hpp"

namespace abh {
namespace {

// Encoder and decoder, post-norm, every kind of position table.
const Rows<NetworkCase> networks([] {
  std::vector<NetworkCase> cases;
  const char* const around[] = {"embeddings=target", "norm=post activation=relu embedding_scale=2.5 logit_bias=1",
                                "embeddings=shared source_vocabulary_size=11 attention_bias=1 embedding_norm=1"};
  for (const MixerProperties& mixer : Mixers::properties) {
    if (mixer.takes("segments") || mixer.takes("hashing")) continue;  // of no encoder or decoder
    NetworkCase translating = encoder_case(mixer.name, 1, 2, around[cases.size() % 3]);
    translating.masked = cases.size() % 2 == 0;
    translating.dropout = cases.size() % 2 == 0 ? 0.2 : 0;
    translating.label_smoothing = 0.1;
    cases.push_back(translating);
  }
  cases.push_back(encoder_case("dot,additive,dot", 2, 1, "positions=rotary conv_kernel=2 conv_groups=0"));
  cases.push_back(encoder_case("metric,dot", 1, 1, "positions=alibi norm=post"));
  cases.push_back(encoder_case("bahdanau,dot", 1, 1, "cross=bahdanau embeddings=target"));
  cases.push_back(network_case("additive,dot", "0", 3, "norm=post activation=relu embedding_scale=0.5"));
  return cases;
});

const Rows<Refusal> refusals = {
    {"generate", {"--length-penalty", "0.6"}, {"--length-penalty: expected --beam 2 or more"}}};

const Rows<std::string, ForHelp> programs = {"average_checkpoints"};

const Rows<FlagNotes> notes = {
    {"--norm post --final-norm 0", {"final-norm: --norm is post"}},
    {"--embeddings separate --cross dot", {"embeddings: there is no source", "cross: there is no source"}},
    {"--task dates --mixer identity --heads 2 --cross bahdanau --embeddings separate", {}}};

const Rows<BenchRowsOf> bench = {[](const BenchSizes& s) {
  const double count = s.B * s.C * s.F;
  return both_passes(s, "relu", count, 1, 1, {.in = count, .out = count});
}};

}  // namespace
}  // namespace abh
