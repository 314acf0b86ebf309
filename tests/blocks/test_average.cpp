#include "blocks/average.hpp"
#include "network/mixers.hpp"
#include "tests/harness/block_case.hpp"

namespace abh {
namespace {

using MakeAverage = MakeBlock<AverageBlock>;

BlockCase<MakeAverage> average_case(Index N, Index K, Index B, Index C, Index window = 0) {
  BlockCase<MakeAverage> block;
  block.options.window = window;
  block.config.heads = N;
  block.config.channels = N * K;
  block.B = B;
  block.C = C;
  return block;
}

TEST_CASE("average: every derivative, every width", "[average]") {
  check_layer(average_case(1, 5, 2, 3));
  check_layer(average_case(3, 3, 1, 7));
  check_layer(average_case(1, 19, 1, 5));
  check_layer(average_case(1, 1, 1, 1));
  for (const Index window : windows({1, 2, 5, 9})) check_layer(average_case(2, 3, 2, 8, window));
}

TEST_CASE("average: with a mask, causal or not", "[average]") {
  for (const Index window : windows({0, 2})) {
    for (const bool causal : {true, false}) {
      if (!causal && (window > 0 || !has_extras)) continue;
      BlockCase<MakeAverage> block = average_case(2, 2, 2, 5, window);
      block.options.causal = causal;
      block.mask_bc = {1, 1, 0, 0, 1, /**/ 0, 0, 1, 1, 0};  // a hole; padding on both sides
      check_layer(block);
      block.mask_bc = {0, 0, 0, 0, 0, /**/ 0, 1, 0, 0, 0};  // nothing; a single position
      check_layer(block);
    }
  }
}

TEST_CASE("average: the worked example of the chapter", "[average]") {
  BlockCase<MakeAverage> block = average_case(1, 1, 1, 4);
  block.options.norm = block.options.residual = false;
  const auto check = [&](auto& device, const Array<double>& out, const Array<double>& d_in) {
    const Values<double> in = {{2, 4, 9, 1}};
    require_close(block.outputs(), run_forward<double>(block, device, in), {out}, 1e-15, "forward");
    require_close(block.inputs(), run_backward<double>(block, device, in, {{1, 2, 3, 4}}), {d_in}, 1e-15, "backward");
  };
  const auto on_both = [&](const Array<double>& out, const Array<double>& d_in) {
    PlainDevice plain;
    CpuDevice<Isa::baseline> cpu(1);
    check(plain, out, d_in);
    check(cpu, out, d_in);
  };
  on_both({2, 3, 5, 4}, {4, 3, 2, 1});
  block.options.window = 2;
  if (has_extras) on_both({2, 3, 6.5, 5}, {2, 2.5, 3.5, 2});
  block.options.window = 0;
  block.mask_bc = {0, 1, 0, 1};
  on_both({0, 4, 4, 2.5}, {0, 7, 0, 2});
  block.options.causal = false;
  if (has_extras) on_both({2.5, 2.5, 2.5, 2.5}, {0, 5, 0, 5});
}

TEST_CASE("average: with dropout, without norm, without residual", "[average]") {
  check_dropout(average_case(1, 7, 3, 5), 0.4, sites::LayerUse::mixer);
  check_without_norm_and_residual(average_case(1, 7, 3, 5));
}

TEST_CASE("average: heads make no difference", "[average]") {
  const Values<double> in = random_values(average_case(1, 12, 2, 9).inputs(), 3);
  PlainDevice device;
  const Values<double> out = run_forward<double>(average_case(1, 12, 2, 9), device, in);
  CHECK(run_forward<double>(average_case(4, 3, 2, 9), device, in) == out);
}

TEST_CASE("average: causal, and step by step the same", "[average][gpu]") {
  for (const Index window : windows({0, 1, 3})) {
    CAPTURE(window);
    check_causality(average_case(2, 3, 2, 5, window));
    check_steps(average_case(2, 3, 1, 11, window));
  }
}

TEST_CASE("average: kernels", "[average][gpu]") { check_gpu("average", "block", average_case(1, 37, 3, 5)); }

}  // namespace
}  // namespace abh
