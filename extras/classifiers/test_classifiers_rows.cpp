// The rows that this feature adds to lists of the core's tests.

#include "tests/harness/bench_rows.hpp"
#include "tests/harness/golden_case.hpp"
#include "tests/harness/network_rows.hpp"
#include "tests/harness/program_rows.hpp"

namespace abh {
namespace {

const Rows<NetworkCase, ForWeightDecay> decaying([] {
  return std::vector{network_case("metric,additive", "0", 2, "classes=3 pooling=cls")};
});

// Three images with 2 channels, 4 rows and 6 columns, which give six patches each.
Content vision_inputs() {
  std::string names =
      "input.image_bgyx weight.embedding.patch_di weight.embedding.patch_bias_d weight.embedding.cls_d "
      "weight.embedding.position_cd weight.final_norm.weight_d weight.final_norm.bias_d weight.classifier.weight_od "
      "weight.classifier.bias_o";
  for (const std::string matrix : {"query_hd", "key_hd", "value_hd", "output_dh"}) {
    names += " weight.blocks.0.mixer." + matrix;
  }
  for (const std::string part : {" weight.blocks.0.mixer.", " weight.blocks.0.ffn."}) {
    names += part + "norm_weight_d" + part + "norm_bias_d";
  }
  names += " weight.blocks.0.ffn.up_fd weight.blocks.0.ffn.down_df";
  Content content = inputs(
      settings("case=vision_transformer layers=1 mixer=dot heads=2 causal=0 patch=2 label_smoothing=0.1"),
      {{'b', 3}, {'g', 2}, {'y', 4}, {'x', 6}, {'i', 8}, {'c', 7}, {'d', 6}, {'h', 4}, {'f', 9}, {'o', 4}}, names);
  content.tokens["input.labels_b"] = {{3}, {2, -100, 0}};
  return content;
}

const Rows<Content> golden([] { return std::vector{vision_inputs()}; });

const Rows<GoldenFault> golden_faults([] {
  return std::vector<GoldenFault>{
      {vision_inputs(), "", "metadata patch is missing", "patch"},
      {vision_inputs(), "patch=4", "patch: 4 does not divide the 4 rows and 6 columns of input.image_bgyx"},
      {vision_inputs(), "patch=0", "patch"},
      {vision_inputs(), "patch=1", "image_bgyx has 25 positions, expected at most the 7"},
      {vision_inputs(), "pooling=max", "metadata pooling: expected mean or cls"},
      {vision_inputs(), "pooling=mean", "weight.embedding.cls_d"}};
});

const Rows<Refusal> refusals = {
    {"train", {"--class-pooling", "cls"}, {"--class-pooling: expected a task with classes, found --task text"}},
    {"train", {"--class-pooling", "mean", "--task", "pairs"}, {"--class-pooling", "found --task pairs"}}};

const Rows<BenchRowsOf> bench = {[](const BenchSizes& s) {
  return both_passes(s, "masked_mean", s.rows(), 1, 1, {.in = s.rows(), .out = s.B * s.D, .wide_out = s.B});
}};

}  // namespace
}  // namespace abh
