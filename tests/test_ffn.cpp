#include "blocks/ffn.hpp"
#include "tests/block_case.hpp"

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

TEST_CASE("ffn: every derivative, every width", "[ffn]") {
  check_layer(ffn_case(5, 2, 3));
  BlockCase<MakeFfn> plain = ffn_case(7, 1, 5);
  plain.config.ffn_bias = false;
  check_layer(plain);
  check_layer(ffn_case(1, 1, 1));
}

TEST_CASE("ffn: with dropout and its fixed mask", "[ffn]") {
  BlockCase<MakeFfn> block = ffn_case(3, 3, 5);
  block.options.dropout = 0.4;
  block.options.layer = 2;
  check_layer(block);

  // The mask is that of (seed, step, site of layer 2's ffn) and falls on the output: without the residual, what is
  // dropped is exactly 0 and the rest is 1 / (1 - p) times what it was.
  block.options.residual = false;
  const Values<double> in = random_values(block.inputs(), 9);
  CpuDevice<Isa::baseline> device(1);
  const Array<double> dropped = run_forward<double>(block, device, in)[0];
  const double p = block.options.dropout;
  block.options.dropout = 0;
  const Array<double> kept = run_forward<double>(block, device, in)[0];
  for (std::size_t i = 0; i < kept.size(); ++i) {
    const std::uint32_t word = philox_word(77, i, 3, sites::layer_site(2, sites::LayerUse::ffn));
    const double factor = word >= static_cast<std::uint32_t>(std::ceil(p * 0x1p32)) ? 1 / (1 - p) : 0;
    CHECK_FALSE(!(std::abs(dropped[i] - factor * kept[i]) <= 1e-14));
  }
}

TEST_CASE("ffn: without norm, without residual", "[ffn]") {
  BlockCase<MakeFfn> block = ffn_case(5, 1, 4);
  block.options.norm = false;
  check_layer(block);
  CHECK(block.inputs().size() == 5);
  block.options.residual = false;
  check_layer(block);
  block.options.norm = true;
  check_layer(block);
}

TEST_CASE("ffn: positions do not see each other, and a step is a pass", "[ffn][gpu]") {
  check_causality(ffn_case(9, 2, 7));
  check_steps(ffn_case(9, 1, 7));
}

TEST_CASE("ffn: F is four times D", "[ffn]") {
  // norm 2 D, up 4 D^2 + 4 D, down 4 D^2 + D.
  Index count = 0;
  for (const Slot& slot : ffn_case(6, 1, 1).inputs()) count += slot.weight ? slot.count() : 0;
  CHECK(count == 2 * 6 + 4 * 36 + 4 * 6 + 4 * 36 + 6);
}

}  // namespace
}  // namespace abh
