#include <cmath>

#include "tests/harness/attention_blocks.hpp"

namespace abh {
namespace {

TEST_CASE("dot: every derivative, at every SIMD width, in every form", "[dot]") {
  for_each_form(dot_case(5, 1, 5, 2, 3), [](const auto& block) { check_layer(block); });
  for_each_form(dot_case(6, 3, 0, 1, 5), [](const auto& block) { check_layer(block); });
  for_each_form(dot_case(3, 2, 5, 1, 4), [](const auto& block) { check_layer(block); });  // H != D
  check_layer(dot_case(1, 1, 1, 1, 1));
}

TEST_CASE("dot: with a mask", "[dot]") {
  BlockCase<MakeDot> block = dot_case(4, 2, 2, 2, 5);
  block.mask_bc = {1, 1, 0, 0, 1, /**/ 0, 0, 1, 1, 0};  // a hole; padding on both sides
  for_each_form(block, [](const auto& each) { check_layer(each); });

  // Row 0 of the second sequence has no key: its output is the residual plus the biases.
  block.config.attention_bias = false;
  const Values<double> in = random_values(block.inputs(), 4);
  CpuDevice<Isa::baseline> device(1);
  const Array<double> out = run_forward<double>(block, device, in)[0];
  for (std::size_t i = 20; i < 28; ++i) CHECK(out[i] == in[0][i]);
}

TEST_CASE("dot: biases by distance", "[dot][gpu]") {
  BlockCase<MakeDot> block = dot_case(6, 3, 0, 1, 7);
  block.config.positions = "alibi";
  for_each_form(block, [](const auto& each) { check_layer(each); });
  check_causality(block);
  check_steps(block);

  // Query and key are 0, so a score is -slope * distance. The slopes of 2 heads are 1/16 and 1/256.
  block = dot_case(2, 2, 1, 1, 3);
  block.config.positions = "alibi";
  block.options.norm = block.options.residual = false;
  const Values<double> in = {{1, 0, 0, 1, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}, {1, 0, 0, 1}, {1, 0, 0, 1}};
  REQUIRE(block.inputs().size() == in.size());
  const double near = std::exp(-1.0 / 16), far = std::exp(-2.0 / 16), flat = std::exp(-1.0 / 256);
  const Array<double> expected = {
      1, 0, near / (1 + near), 1 / (1 + flat), far / (1 + near + far), flat / (1 + flat + flat * flat)};
  CpuDevice<Isa::baseline> device(1);
  require_close(block.outputs(), run_forward<double>(block, device, in), {expected}, 1e-14, "by hand");
}

// As above, at the second of two positions, with one channel a head. Interleaved, the slopes of 3 heads are 1/16, 1/256
// and 1/4.
TEST_CASE("dot: interleaved slopes, computed by hand", "[dot][gpu]") {
  BlockCase<MakeDot> block = dot_case(3, 3, 1, 1, 2);
  block.config.positions = "alibi";
  block.config.alibi_slopes = "interleaved";
  block.options.norm = block.options.residual = false;
  const Array<double> unit = {1, 0, 0, 0, 1, 0, 0, 0, 1}, none(9);
  const Values<double> in = {{1, 1, 1, 0, 0, 0}, none, none, unit, unit};
  REQUIRE(block.inputs().size() == in.size());
  const auto share = [](double slope) { return 1 / (1 + std::exp(slope)); };  // of the position before
  const Array<double> expected = {1, 1, 1, share(1.0 / 16), share(1.0 / 256), share(1.0 / 4)};
  CpuDevice<Isa::baseline> device(1);
  require_close(block.outputs(), run_forward<double>(block, device, in), {expected}, 1e-14, "by hand");
  check_gpu("dot", "interleaved slopes", block);
}

TEST_CASE("dot: with dropout, without norm, without residual", "[dot]") {
  check_dropout(dot_case(6, 2, 3, 2, 3), 0.25, sites::LayerUse::mixer);
  check_without_norm_and_residual(dot_case(4, 1, 4, 1, 4));
}

TEST_CASE("dot: a key bias has zero gradients", "[dot]") {
  BlockCase<MakeDot> block = dot_case(5, 1, 5, 2, 6);
  block.config.attention_bias = true;
  const Values<double> in = random_values(block.inputs(), 7);
  CpuDevice<Isa::baseline> device(1);
  const Values<double> d_in = run_backward<double>(block, device, in, random_values(block.outputs(), 8));
  const std::vector<TensorSpec> specs = block.inputs();
  for (std::size_t s = 0; s < specs.size(); ++s) {
    if (specs[s].name == "key_bias_h") CHECK_FALSE(!(largest(d_in[s]) <= 1e-13));
    if (specs[s].name == "query_bias_h") CHECK(largest(d_in[s]) > 1e-3);
  }
}

TEST_CASE("dot: causal, and inference equals the full pass", "[dot][gpu]") {
  check_causality(dot_case(10, 2, 5, 2, 9));
  for_each_form(dot_case(6, 2, 4, 1, 12), [](const auto& block) {
    if (block.options.causal) check_steps(block);
  });
}

}  // namespace
}  // namespace abh
