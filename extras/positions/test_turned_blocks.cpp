// Dot-product and metric attention with rotary positions or rescaled queries and keys.

#include <cmath>

#include "tests/harness/attention_blocks.hpp"

namespace abh {
namespace {

BlockCase<MakeDot> turned_case(Index D, Index N, Index K, Index B, Index C) {
  BlockCase<MakeDot> block = dot_case(D, N, K, B, C);
  block.config.positions = "rotary";
  return block;
}

TEST_CASE("dot: queries and keys with rotary positions", "[dot][gpu]") {
  BlockCase<MakeDot> block = turned_case(5, 2, 3, 2, 4);
  for_each_form(block, [](const auto& each) { check_layer(each); });
  block.mask_bc = {1, 0, 1, 1, /**/ 0, 1, 1, 0};
  check_layer(block);
  check_causality(turned_case(10, 2, 5, 2, 9));
  check_steps(turned_case(6, 2, 4, 1, 12));
  check_steps(turned_case(5, 1, 7, 1, 12));
}

TEST_CASE("dot: rescaled queries and keys, with and without rotary positions", "[dot][gpu]") {
  for (const char* positions : {"none", "rotary"}) {
    CAPTURE(positions);
    const auto rescaled = [&](BlockCase<MakeDot> block) {
      block.config.rescale = 3;
      block.config.positions = positions;
      return block;
    };
    BlockCase<MakeDot> block = rescaled(dot_case(5, 2, 3, 2, 4));
    for_each_form(block, [](const auto& each) { check_layer(each); });
    block.mask_bc = {1, 0, 1, 1, /**/ 0, 1, 1, 0};
    check_layer(block);
    check_causality(rescaled(dot_case(10, 2, 5, 2, 9)));
    check_steps(rescaled(dot_case(6, 2, 4, 1, 12)));
  }
}

TEST_CASE("dot: a rescaled score is bounded and has its own scale", "[dot]") {
  // Heads of two channels are rescaled to (1, -1) / sqrt(2) or its negative, so scores are c / 2 or -c / 2. A change of
  // sign in the one input channel negates every query and key.
  BlockCase<MakeDot> block = dot_case(1, 1, 2, 1, 2);
  block.options.norm = block.options.residual = false;
  block.config.rescale = 3;
  CpuDevice<Isa::baseline> device(1);
  // Weights: query_hd, key_hd, value_hd, output_dh.
  const Values<double> in = {{1, -1}, {2, 5}, {7, -100}, {1, 0}, {1, 0}};
  const Array<double> out = run_forward<double>(block, device, in)[0];
  // Position 1: query (2, 5) * -1, keys (7, -100) and its opposite. Its scores are opposite, c / 2 for the first.
  const double first = std::exp(1.5), second = std::exp(-1.5);
  CHECK_FALSE(!(std::abs(out[0] - 1) <= 1e-14));
  CHECK_FALSE(!(std::abs(out[1] - (first - second) / (first + second)) <= 1e-4));
}

BlockCase<MakeMetric> turned_case(MetricForm form, Index D, Index N, Index K, Index B, Index C) {
  BlockCase<MakeMetric> block = metric_case(form, D, N, K, B, C);
  block.config.positions = "rotary";
  return block;
}

TEST_CASE("metric: queries and keys with rotary positions", "[metric][gpu]") {
  for_each_form(turned_case(MetricForm::packed, 5, 2, 3, 2, 4), [](auto block) {
    check_layer(block);
    block.mask_bc = {1, 0, 1, 1, /**/ 0, 1, 1, 0};
    check_layer(block);
  });
  for (const MetricForm form : {MetricForm::packed, MetricForm::full}) {
    check_causality(turned_case(form, 10, 2, 5, 2, 9));
    check_steps(turned_case(form, 6, 2, 4, 1, 12));
    check_steps(turned_case(form, 5, 1, 7, 1, 12));
  }
}

TEST_CASE("metric: a rotation changes scores, except at distance 0", "[metric]") {
  // At distance 0 there is no rotation, so a sequence of one position is the same with and without it.
  BlockCase<MakeMetric> block = turned_case(MetricForm::packed, 5, 2, 4, 3, 1);
  const Values<double> in = random_values(block.inputs(), 3);
  CpuDevice<Isa::baseline> device(1);
  const Values<double> alone = run_forward<double>(block, device, in);
  block.config.positions = "none";
  CHECK(run_forward<double>(block, device, in) == alone);
  // With several positions, the rotation changes the outputs.
  block = turned_case(MetricForm::packed, 5, 2, 4, 3, 4);
  const Values<double> more = random_values(block.inputs(), 3);
  const Values<double> turned = run_forward<double>(block, device, more);
  block.config.positions = "none";
  CHECK(run_forward<double>(block, device, more) != turned);
}

}  // namespace
}  // namespace abh
