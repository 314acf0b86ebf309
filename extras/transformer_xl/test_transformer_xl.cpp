#include <cmath>

#include "extras/transformer_xl/transformer_xl.hpp"
#include "tests/harness/block_case.hpp"

namespace abh {
namespace {

using MakeTransformerXl = MakeBlock<TransformerXlBlock>;

BlockCase<MakeTransformerXl> xl_case(Index D, Index N, Index K, Index B, Index C, Index segment, Index memory,
                                     Index clamp = 0) {
  BlockCase<MakeTransformerXl> block = case_of_heads<MakeTransformerXl>(D, N, K, B, C);
  block.config.extras.segment = segment;
  block.config.extras.memory = memory;
  block.config.extras.clamp = clamp;
  return block;
}

// Without a memory, as dual numbers would differentiate the constant memory.
TEST_CASE("transformer_xl: every derivative, at every SIMD width", "[transformer_xl]") {
  check_layer(xl_case(4, 1, 4, 2, 3, 3, 0));
  check_layer(xl_case(6, 3, 0, 1, 7, 3, 0));
  check_layer(xl_case(4, 2, 5, 1, 5, 8, 6, 2));  // H != D, a segment longer than the sequence, a clamp
  check_layer(xl_case(2, 1, 1, 1, 1, 1, 1));
}

TEST_CASE("transformer_xl: with a mask", "[transformer_xl]") {
  BlockCase<MakeTransformerXl> block = xl_case(4, 2, 2, 2, 5, 3, 0);
  block.mask_bc = {1, 1, 0, 0, 1, /**/ 0, 0, 1, 1, 0};  // a hole; padding on both sides
  check_layer(block);
}

TEST_CASE("transformer_xl: with dropout, without norm, without residual", "[transformer_xl]") {
  check_dropout(xl_case(6, 2, 3, 2, 3, 2, 0), 0.25, sites::LayerUse::mixer);
  check_without_norm_and_residual(xl_case(4, 1, 4, 1, 4, 3, 0));
}

TEST_CASE("transformer_xl: causal, and inference equals the full pass", "[transformer_xl][gpu]") {
  check_causality(xl_case(10, 2, 5, 2, 9, 4, 3));
  check_steps(xl_case(6, 2, 4, 1, 12, 4, 4));
  check_steps(xl_case(6, 2, 3, 1, 23, 5, 3));  // a memory shorter than a segment, which does not divide the sequence
  check_steps(xl_case(4, 1, 7, 1, 40, 6, 15, 9));  // and longer
  check_steps(xl_case(4, 1, 3, 1, 11, 1, 4));      // segments of one position
  check_steps(xl_case(4, 1, 3, 1, 11, 4, 0));
  check_steps(xl_case(4, 1, 3, 1, 9, 20, 5));
}

TEST_CASE("transformer_xl: gradients pass through a memory to norm and maps, not to its rows", "[transformer_xl]") {
  // The input has two segments; the upstream gradient is 0 in the first.
  const auto gradients = [](Index memory) {
    BlockCase<MakeTransformerXl> block = xl_case(4, 2, 2, 1, 6, 3, memory);
    block.options.residual = false;
    CpuDevice<Isa::baseline> device(1);
    const Values<double> in = random_values(block.inputs(), 1);
    Values<double> d_out = random_values(block.outputs(), 2);
    for (std::size_t i = 0; i < 12; ++i) d_out[0][i] = 0;
    return std::pair(block.inputs(), run_backward<double>(block, device, in, d_out));
  };
  const auto [slots, with] = gradients(3);
  const Values<double> without = gradients(0).second;
  for (std::size_t i = 0; i < 12; ++i) CHECK(with[0][i] == 0);
  for (std::size_t slot = 1; slot < slots.size(); ++slot) {
    INFO(slots[slot].name);
    CHECK(with[slot] != without[slot]);
  }
}

}  // namespace
}  // namespace abh
