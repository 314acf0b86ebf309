#include <cmath>

#include "extras/bahdanau/bahdanau.hpp"
#include "network/mixers.hpp"
#include "tests/harness/block_case.hpp"

namespace abh {
namespace {

using MakeBahdanau = MakeBlock<BahdanauBlock>;

BlockCase<MakeBahdanau> bahdanau_case(Index D, Index N, Index K, Index B, Index C) {
  return case_of_heads<MakeBahdanau>(D, N, K, B, C);
}

template <class Body>
void for_each_direction(BlockCase<MakeBahdanau> block, const Body& body) {
  for (const bool causal : {false, true}) {
    block.options.causal = causal;
    CAPTURE(causal);
    body(block);
  }
}

TEST_CASE("bahdanau: every derivative, at every SIMD width, in both directions", "[bahdanau]") {
  for_each_direction(bahdanau_case(5, 1, 5, 2, 3), [](const auto& block) { check_layer(block); });
  for_each_direction(bahdanau_case(6, 3, 0, 1, 5), [](const auto& block) { check_layer(block); });
  for_each_direction(bahdanau_case(3, 2, 5, 1, 4), [](const auto& block) { check_layer(block); });  // H != D
  check_layer(bahdanau_case(1, 1, 1, 1, 1));
}

TEST_CASE("bahdanau: with a mask", "[bahdanau]") {
  BlockCase<MakeBahdanau> block = bahdanau_case(4, 2, 2, 2, 5);
  block.mask_bc = {1, 1, 0, 0, 1, /**/ 0, 0, 1, 1, 0};  // a hole; padding on both sides
  for_each_direction(block, [](const auto& each) { check_layer(each); });

  // Row 0 of the second sequence has no key: its output is the residual.
  const Values<double> in = random_values(block.inputs(), 4);
  CpuDevice<Isa::baseline> device(1);
  const Array<double> out = run_forward<double>(block, device, in)[0];
  for (std::size_t i = 20; i < 28; ++i) CHECK(out[i] == in[0][i]);
}

TEST_CASE("bahdanau: biases by distance", "[bahdanau][gpu]") {
  BlockCase<MakeBahdanau> block = bahdanau_case(6, 3, 0, 1, 7);
  block.config.positions = "alibi";
  for_each_direction(block, [](const auto& each) { check_layer(each); });
  check_causality(block);
  check_steps(block);
}

TEST_CASE("bahdanau: rotary positions change no bit", "[bahdanau]") {
  BlockCase<MakeBahdanau> block = bahdanau_case(6, 3, 0, 1, 7);
  const Values<double> in = random_values(block.inputs(), 4);
  CpuDevice<Isa::baseline> device(1);
  const Values<double> out = run_forward<double>(block, device, in);
  block.config.positions = "rotary";
  CHECK(run_forward<double>(block, device, in) == out);
}

TEST_CASE("bahdanau: with dropout, without norm, without residual", "[bahdanau]") {
  check_dropout(bahdanau_case(6, 2, 3, 2, 3), 0.25, sites::LayerUse::mixer);
  check_without_norm_and_residual(bahdanau_case(4, 1, 4, 1, 4));
}

TEST_CASE("bahdanau: causal, and inference equals the full pass", "[bahdanau][gpu]") {
  check_causality(bahdanau_case(10, 2, 5, 2, 9));
  check_steps(bahdanau_case(6, 2, 4, 1, 12));
  check_steps(bahdanau_case(5, 1, 7, 1, 40));
}

}  // namespace
}  // namespace abh
