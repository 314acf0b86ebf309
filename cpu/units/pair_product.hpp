#pragma once

// Instruction of AVX512_BF16, only for gemm_pairs.cpp.

#include <immintrin.h>

#include "cpu/lanes.hpp"

namespace abh {
inline namespace ABH_ISA {

// 16 pairs of bf16.
using PairLanes = LanesOf<std::uint32_t, 16>::type;

// sum + a1 b1, rounded, + a0 b0, rounded; subnormal operands and sums are 0 (docs/bf16.md).
inline __attribute__((always_inline)) Wide<float> add_pair_product(Wide<float> sum, PairLanes a, PairLanes b) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}

}  // namespace ABH_ISA
}  // namespace abh
