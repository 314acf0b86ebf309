#include "blocks/identity.hpp"
#include "tests/harness/block_case.hpp"

namespace abh {
namespace {

using MakeIdentity = MakeBlock<IdentityBlock>;

BlockCase<MakeIdentity> identity_case(Index D, Index B, Index C) {
  BlockCase<MakeIdentity> block;
  block.config.channels = D;
  block.B = B;
  block.C = C;
  return block;
}

TEST_CASE("identity: every derivative, at every SIMD width", "[identity]") {
  check_layer(identity_case(5, 2, 3));
  check_layer(identity_case(19, 1, 5));
  check_layer(identity_case(1, 1, 1));
}

TEST_CASE("identity: with dropout, without norm, without residual", "[identity]") {
  check_dropout(identity_case(7, 3, 5), 0.4, sites::LayerUse::mixer);
  check_without_norm_and_residual(identity_case(7, 3, 5));
}

TEST_CASE("identity: causal, and inference equals the full pass", "[identity][gpu]") {
  check_causality(identity_case(6, 2, 5));
  check_steps(identity_case(6, 1, 5));
}

TEST_CASE("identity: GPU kernels", "[identity][gpu]") { check_gpu("identity", "block", identity_case(37, 3, 5)); }

}  // namespace
}  // namespace abh
