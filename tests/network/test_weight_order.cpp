#include <map>
#include <string>
#include <vector>

#include "tests/harness/weight_order.hpp"

namespace abh {
namespace {

// Weights are declared in the order of these rows. Initial values are drawn and the arena is filled in this order. A
// change of the order changes every run, and mixes up the moments of old checkpoints.
TEST_CASE("weights: their order equals that of earlier runs", "[network]") {
  const std::string before =
      "embedding.token_vd embedding.position_cd embedding.norm_weight_d embedding.norm_bias_d "
      "blocks.0.conv.norm_weight_d blocks.0.conv.norm_bias_d blocks.0.conv.weight_dgj";
  const std::string after =
      "blocks.0.ffn.norm_weight_d blocks.0.ffn.norm_bias_d blocks.0.ffn.up_fd blocks.0.ffn.up_bias_f "
      "blocks.0.ffn.down_df blocks.0.ffn.down_bias_d final_norm.weight_d final_norm.bias_d logit_bias_v";
  const std::map<std::string, std::string> of_core = {
      {"additive",
       "norm_weight_d norm_bias_d mid_norm_weight_d mid_norm_bias_d query_dd key_dd value_dd mix_dd query_pool_nk "
       "key_pool_nk"},
      {"metric", "norm_weight_d norm_bias_d project_hd metric_nl output_dh"},
      {"quadratic", "norm_weight_d norm_bias_d project_hd metric_nkk output_dh"},
      {"dot",
       "norm_weight_d norm_bias_d query_hd key_hd value_hd query_bias_h key_bias_h value_bias_h output_dh "
       "output_bias_d"},
      {"average", "norm_weight_d norm_bias_d"},
      {"identity", "norm_weight_d norm_bias_d"},
  };
  std::vector<WeightOrder> orders;
  for (const auto& [mixer, names] : of_core) orders.push_back({mixer, names});
  orders = Rows<WeightOrder>::all(orders);
  for (const MixerProperties& mixer : Mixers::properties) {
    CAPTURE(mixer.name);
    CHECK((of_core.count(mixer.name) == 1 || !feature_of("mixer", mixer.name).empty()));
  }
  for (const auto& [mixer, names_of_mixer, changes] : orders) {
    CAPTURE(mixer, changes);
    const ModelConfig config =
        changed(ModelConfig{.layers = 1, .channels = 8, .heads = 2, .context = 4, .vocabulary = 5, .mixer = mixer},
                "conv_kernel=2 embedding_norm=1 logit_bias=1 attention_bias=1 values=own projection=1 " + changes);
    std::string expected = before;
    std::string names = (names_of_mixer.empty() ? of_core.at(mixer) : names_of_mixer) + " ";
    for (std::size_t end; (end = names.find(' ')) != names.npos; names.erase(0, end + 1)) {
      expected += " blocks.0.mixer." + names.substr(0, end);
    }
    CHECK(names_of(parameter_table(config)) == expected + " " + after);
  }
}

// Matrices come first, then all other weights, each in the order of the table and without gaps.
TEST_CASE("weights: their places in the arena follow their order", "[network]") {
  for (const MixerProperties& mixer : Mixers::properties) {
    CAPTURE(mixer.name);
    const ModelConfig config{
        .layers = 2, .channels = 8, .heads = 2, .context = 4, .vocabulary = 5, .mixer = mixer.name, .conv_kernel = 3};
    Index end = 0;
    for (const bool in_front : {true, false}) {
      for (const Parameter& parameter : parameter_table(config)) {
        if (lies_in_front(parameter.kind) != in_front) continue;
        CHECK(parameter.offset == end);
        end += parameter.count;
      }
    }
  }
}

}  // namespace
}  // namespace abh
