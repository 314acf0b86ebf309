// The rows that this feature adds to lists of the core's tests.

#include <algorithm>

#include "tests/harness/bench_rows.hpp"
#include "tests/harness/flag_pairs.hpp"
#include "tests/harness/golden_case.hpp"
#include "tests/harness/import_case.hpp"
#include "tests/harness/weight_order.hpp"

namespace abh {
namespace {

const Rows<MixerNeeds> needs = {
    {"hashing", "lsh_rounds=2 lsh_buckets=4 lsh_piece=3", "--lsh-rounds 2 --lsh-buckets 4 --lsh-piece 3"}};
const Rows<std::string, FeatureFlags> flags = {"lsh-rounds=2 lsh-buckets=4 lsh-piece=3"};

const Rows<WeightOrder> weights = {{"lsh", "norm_weight_d norm_bias_d project_hd value_hd rotations_nukr output_dh",
                                    "lsh_rounds=2 lsh_buckets=4 lsh_piece=3"}};

const Rows<Content> golden([] {
  return std::vector{inputs(settings("case=lsh_attention heads=2 chunk=3 duplicates=counted causal=0"),
                            {{'b', 2}, {'c', 7}, {'d', 4}, {'h', 6}, {'n', 2}, {'u', 2}, {'k', 3}, {'r', 2}},
                            in_and_out + "input.rotations_nukr weight.project_hd weight.value_hd weight.output_dh")};
});

const Rows<ModelConfig, ForPython> in_python([] {
  return std::vector{
      changed(model_for_python("lsh"), "lsh_rounds=3 lsh_buckets=6 lsh_piece=2 head_channels=5 causal=0")};
});

const Rows<PairedFlags> pairs = {PairedFlags{"--mixer lsh --lsh-rounds 2 --lsh-buckets 4 --lsh-piece 3"}};

const Rows<BenchRowsOf> bench = {[](const BenchSizes& s) {
  const double rounds = 2, columns = 4, keys = 2 * std::min(s.C, 64.0);  // of a piece and the one before it
  return both_passes(s, "lsh_attention", s.rows() * rounds * keys, 4, 10,
                     {.in = 2 * s.rows(), .out = s.rows() + rounds * s.D * columns, .wide_out = s.statistics()});
}};

}  // namespace
}  // namespace abh
