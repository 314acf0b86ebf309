#include "blocks/conv.hpp"
#include "network/mixers.hpp"
#include "tests/harness/block_case.hpp"

namespace abh {
namespace {

using MakeConv = MakeBlock<ConvBlock>;

BlockCase<MakeConv> conv_case(Index D, Index groups, Index kernel, Index B, Index C) {
  BlockCase<MakeConv> block;
  block.config.channels = D;
  block.config.conv_groups = groups;
  block.config.conv_kernel = kernel;
  block.B = B;
  block.C = C;
  return block;
}

TEST_CASE("conv: every derivative, at every SIMD width", "[conv]") {
  check_layer(conv_case(6, 0, 4, 2, 7));  // depthwise
  check_layer(conv_case(6, 2, 3, 1, 5));
  check_layer(conv_case(5, 1, 4, 2, 3));  // dense; the kernel is longer than the sequence
  check_layer(conv_case(9, 3, 1, 2, 3));  // one tap: positions are independent
  check_layer(conv_case(1, 1, 2, 1, 1));
}

TEST_CASE("conv: with dropout, without norm, without residual", "[conv]") {
  check_dropout(conv_case(6, 0, 3, 2, 5), 0.3, sites::LayerUse::conv);
  check_without_norm_and_residual(conv_case(4, 2, 3, 1, 5));
}

TEST_CASE("conv: before the first position the normalized input is 0", "[conv]") {
  // With weights of 0 in all taps except the first, the first kernel - 1 positions pass unchanged, although the norm's
  // bias is not 0. The next position receives the normalized position 0.
  const BlockCase<MakeConv> block = conv_case(3, 0, 3, 1, 4);
  Values<double> in = random_values(block.inputs(), 11);
  REQUIRE(block.inputs()[3].name == "weight_dgj");
  for (std::size_t d = 0; d < 3; ++d) in[3][3 * d + 0] = 1, in[3][3 * d + 1] = 0, in[3][3 * d + 2] = 0;
  CpuDevice<Isa::baseline> device(1);
  const Array<double> out = run_forward<double>(block, device, in)[0];
  for (std::size_t i = 0; i < 6; ++i) CHECK(out[i] == in[0][i]);
  double mean = 0, variance = 0;
  for (std::size_t d = 0; d < 3; ++d) mean += in[0][d] / 3;
  for (std::size_t d = 0; d < 3; ++d) variance += (in[0][d] - mean) * (in[0][d] - mean) / 3;
  for (std::size_t d = 0; d < 3; ++d) {
    const double normed = in[1][d] * (in[0][d] - mean) / std::sqrt(variance + layernorm_epsilon) + in[2][d];
    CHECK_FALSE(!(std::abs(out[6 + d] - (in[0][6 + d] + normed)) <= 1e-13));
  }
}

TEST_CASE("conv: causal, and inference equals the full pass", "[conv][gpu]") {
  check_causality(conv_case(6, 0, 4, 2, 9));
  check_causality(conv_case(6, 2, 4, 1, 9));
  for (const Index groups : {0, 1, 2}) {
    for (const Index kernel : {1, 2, 4}) check_steps(conv_case(6, groups, kernel, 1, 11));
  }
}

}  // namespace
}  // namespace abh
