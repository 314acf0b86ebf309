#include "tests/harness/pooling_blocks.hpp"

namespace abh {
namespace {

TEST_CASE("average: every derivative, at every SIMD width", "[average]") {
  check_layer(average_case(1, 5, 2, 3));
  check_layer(average_case(3, 3, 1, 7));
  check_layer(average_case(1, 19, 1, 5));
  check_layer(average_case(1, 1, 1, 1));
}

TEST_CASE("average: with a mask", "[average]") { check_average_with_mask(average_case(2, 2, 2, 5)); }

TEST_CASE("average: the worked example of the chapter", "[average]") {
  BlockCase<MakeAverage> block = average_case(1, 1, 1, 4);
  check_average_example(block, {2, 3, 5, 4}, {4, 3, 2, 1});
  block.mask_bc = {0, 1, 0, 1};
  check_average_example(block, {0, 4, 4, 2.5}, {0, 7, 0, 2});
}

TEST_CASE("average: with dropout, without norm, without residual", "[average]") {
  check_dropout(average_case(1, 7, 3, 5), 0.4, sites::LayerUse::mixer);
  check_without_norm_and_residual(average_case(1, 7, 3, 5));
}

TEST_CASE("average: the number of heads changes nothing", "[average]") {
  const Values<double> in = random_values(average_case(1, 12, 2, 9).inputs(), 3);
  PlainDevice device;
  const Values<double> out = run_forward<double>(average_case(1, 12, 2, 9), device, in);
  CHECK(run_forward<double>(average_case(4, 3, 2, 9), device, in) == out);
}

TEST_CASE("average: causal, and inference equals the full pass", "[average][gpu]") {
  check_causality(average_case(2, 3, 2, 5));
  check_steps(average_case(2, 3, 1, 11));
}

TEST_CASE("average: GPU kernels", "[average][gpu]") { check_gpu("average", "block", average_case(1, 37, 3, 5)); }

}  // namespace
}  // namespace abh
