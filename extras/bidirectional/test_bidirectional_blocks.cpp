// The blocks of the core that pool, where every position attends to all.

#include "tests/harness/pooling_blocks.hpp"

namespace abh {
namespace {

TEST_CASE("bidirectional: additive, not causal, every derivative", "[bidirectional]") {
  BlockCase<MakeAdditive> block = additive_case(2, 2, 2, 5);
  block.options.causal = false;
  check_layer(block);
  block.mask_bc = {1, 1, 0, 0, 1, /**/ 0, 0, 1, 1, 0};
  for_each_form(block, [](const auto& each) { check_layer(each); });
}

TEST_CASE("bidirectional: average, every derivative", "[bidirectional]") {
  BlockCase<MakeAverage> masked = average_case(2, 2, 2, 5);
  masked.options.causal = false;
  check_average_with_mask(masked);
  BlockCase<MakeAverage> example = average_case(1, 1, 1, 4);
  example.options.causal = false;
  example.mask_bc = {0, 1, 0, 1};
  check_average_example(example, {2.5, 2.5, 2.5, 2.5}, {0, 5, 0, 5});
}

TEST_CASE("bidirectional: GPU kernels of additive", "[bidirectional][gpu]") {
  BlockCase<MakeAdditive> block = additive_case(2, 16, 3, 21);
  block.options.causal = false;
  check_gpu("additive", "block, not causal", block);
}

}  // namespace
}  // namespace abh
