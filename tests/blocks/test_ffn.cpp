#include <cmath>

#include "blocks/ffn.hpp"
#include "network/mixers.hpp"
#include "tests/harness/block_case.hpp"

namespace abh {
namespace {

using MakeFfn = MakeBlock<FfnBlock>;

BlockCase<MakeFfn> ffn_case(Index D, Index B, Index C) {
  BlockCase<MakeFfn> block;
  block.config.channels = D;
  block.B = B;
  block.C = C;
  return block;
}

TEST_CASE("ffn: every derivative, at every SIMD width", "[ffn]") {
  check_layer(ffn_case(5, 2, 3));
  BlockCase<MakeFfn> plain = ffn_case(7, 1, 5);
  plain.config.ffn_bias = false;
  check_layer(plain);
  check_layer(ffn_case(1, 1, 1));
}

TEST_CASE("ffn: every derivative of the tanh form, at every SIMD width", "[ffn][gelu]") {
  const BlockCase<MakeFfn> exact = ffn_case(5, 2, 3);
  BlockCase<MakeFfn> fitted = exact;
  fitted.config.activation = "gelu_tanh";
  check_layer(fitted);
  // It is the other form of the same function (docs/layers/gelu.md).
  PlainDevice plain;
  const Values<double> in = random_values(exact.inputs(), 1);
  const Values<double> exact_out = run_forward<double>(exact, plain, in);
  const Values<double> fitted_out = run_forward<double>(fitted, plain, in);
  double difference = 0;
  for (std::size_t i = 0; i < exact_out[0].size(); ++i) {
    difference = at_least(difference, std::abs(exact_out[0][i] - fitted_out[0][i]));
  }
  CHECK(difference > 1e-5);
  CHECK_FALSE(!(difference < 0.02));
}

TEST_CASE("ffn: with dropout, without norm, without residual", "[ffn]") {
  check_dropout(ffn_case(3, 3, 5), 0.4, sites::LayerUse::ffn);
  check_without_norm_and_residual(ffn_case(5, 1, 4));
}

TEST_CASE("ffn: positions are independent, and inference equals the full pass", "[ffn][gpu]") {
  check_causality(ffn_case(9, 2, 7));
  check_steps(ffn_case(9, 1, 7));
}

TEST_CASE("ffn: the hidden size F is 4 D", "[ffn]") {
  // norm 2 D, up 4 D^2 + 4 D, down 4 D^2 + D.
  Index count = 0;
  for (const TensorSpec& spec : ffn_case(6, 1, 1).inputs()) count += spec.weight ? spec.count() : 0;
  CHECK(count == 2 * 6 + 4 * 36 + 4 * 6 + 4 * 36 + 6);
}

}  // namespace
}  // namespace abh
