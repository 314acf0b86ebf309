#include <cmath>

#include "extras/lsh/lsh.hpp"
#include "network/network.hpp"
#include "tests/harness/block_case.hpp"
#include "tests/harness/network_case.hpp"

namespace abh {
namespace {

using MakeLsh = MakeBlock<LshBlock>;

BlockCase<MakeLsh> lsh_case(Index D, Index N, Index K, Index B, Index C, Index rounds, Index buckets, Index piece) {
  BlockCase<MakeLsh> block = case_of_heads<MakeLsh>(D, N, K, B, C);
  block.config.extras.lsh_rounds = rounds;
  block.config.extras.lsh_buckets = buckets;
  block.config.extras.lsh_piece = piece;
  return block;
}

TEST_CASE("lsh: every derivative, at every SIMD width", "[lsh]") {
  check_layer(lsh_case(4, 1, 4, 2, 5, 1, 2, 2));
  check_layer(lsh_case(6, 2, 0, 1, 7, 2, 4, 3));
  check_layer(lsh_case(4, 2, 5, 1, 6, 3, 4, 2));  // H != D
  check_layer(lsh_case(4, 1, 2, 1, 1, 1, 2, 1));
}

TEST_CASE("lsh: with a mask", "[lsh]") {
  BlockCase<MakeLsh> block = lsh_case(4, 2, 2, 2, 5, 2, 4, 2);
  block.mask_bc = {1, 1, 0, 0, 1, /**/ 0, 0, 1, 1, 0};  // a hole; padding on both sides
  check_layer(block);
}

TEST_CASE("lsh: with dropout, without norm, without residual", "[lsh]") {
  check_dropout(lsh_case(6, 2, 3, 2, 3, 2, 4, 2), 0.25, sites::LayerUse::mixer);
  check_without_norm_and_residual(lsh_case(4, 1, 4, 1, 4, 2, 2, 2));
}

// extras/lsh/README.md: after a change of the last token, many earlier rows have other candidates.
TEST_CASE("lsh: the last token changes the keys of earlier positions", "[lsh]") {
  const NetworkCase network = network_case("lsh", "0", 0, "layers=1 context=64 lsh_buckets=8 lsh_piece=8");
  NetworkCase long_one = network;
  long_one.C = 64;
  long_one.B = 1;
  using Reference = CpuDevice<Isa::baseline>;
  Built<Reference, double> built(long_one, long_one.weights());
  std::vector<Token> tokens = long_one.tokens_bc();
  const Index V = long_one.config.vocabulary;
  const auto logits = [&] {
    auto batch = built.batch();
    batch.token_bc = tokens.data();
    built.net.forward(batch, built.pass());
    return std::vector<double>(built.net.logits_bcv(), built.net.logits_bcv() + 64 * V);
  };
  const std::vector<double> before = logits();
  tokens[63] = static_cast<Token>((tokens[63] + 1) % V);
  const std::vector<double> after = logits();
  Index changed = 0;
  for (Index c = 0; c < 63; ++c) {
    const auto row = before.begin() + c * V;
    changed += !std::equal(row, row + V, after.begin() + c * V);
  }
  CHECK(changed > 0);
}

}  // namespace
}  // namespace abh
