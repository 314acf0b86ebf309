#pragma once

// The pooling blocks, additive and average, for the tests of the core and of features.

#include "blocks/additive.hpp"
#include "blocks/average.hpp"
#include "network/mixers.hpp"
#include "tests/harness/block_case.hpp"

namespace abh {

using MakeAdditive = MakeBlock<AdditiveBlock>;
using MakeAverage = MakeBlock<AverageBlock>;

inline BlockCase<MakeAdditive> additive_case(Index N, Index K, Index B, Index C, Index window = 0) {
  BlockCase<MakeAdditive> block = case_of_heads<MakeAdditive>(N * K, N, 0, B, C);
  block.options.window = window;
  return block;
}

// Every combination of values, projection and skip.
template <class Body>
void for_each_form(BlockCase<MakeAdditive> block, const Body& body) {
  for (const char* values : {"shared", "own"}) {
    for (const char* skip : {"stream", "normed"}) {
      for (const bool projection : {false, true}) {
        block.config.additive.values = values;
        block.config.additive.skip = skip;
        block.config.additive.projection = projection;
        CAPTURE(values, skip, projection);
        body(block);
      }
    }
  }
}

inline BlockCase<MakeAverage> average_case(Index N, Index K, Index B, Index C, Index window = 0) {
  BlockCase<MakeAverage> block = case_of_heads<MakeAverage>(N * K, N, 0, B, C);
  block.options.window = window;
  return block;
}

inline void check_average_with_mask(BlockCase<MakeAverage> block) {
  block.mask_bc = {1, 1, 0, 0, 1, /**/ 0, 0, 1, 1, 0};  // a hole; padding on both sides
  check_layer(block);
  block.mask_bc = {0, 0, 0, 0, 0, /**/ 0, 1, 0, 0, 0};  // all masked; a single position
  check_layer(block);
}

// The worked example of the chapter: a sequence of four positions, on the plain loops and on the CPU.
inline void check_average_example(BlockCase<MakeAverage> block, const Array<double>& out, const Array<double>& d_in) {
  block.options.norm = block.options.residual = false;
  const auto check = [&](auto& device) {
    const Values<double> in = {{2, 4, 9, 1}};
    require_close(block.outputs(), run_forward<double>(block, device, in), {out}, 1e-15, "forward");
    require_close(block.inputs(), run_backward<double>(block, device, in, {{1, 2, 3, 4}}), {d_in}, 1e-15, "backward");
  };
  PlainDevice plain;
  CpuDevice<Isa::baseline> cpu(1);
  check(plain);
  check(cpu);
}

}  // namespace abh
