#pragma once

// Dropout factors for kernels that apply a mask beside other work: whole Philox blocks, drawn one after the other.

#include "cuda/kernel.hpp"

namespace abh {
inline namespace ABH_BACKEND {

// True if elements 4 i ... 4 i + 3 of the array are one Philox block.
inline bool begins_block(const Dropout& dropout) { return dropout.first % 4 == 0; }

// Factors of `width` elements from `element` on, both multiples of 4, of such an array. The empty instruction keeps the
// compiler from drawing the masks of all positions of a thread at once, for which it has too few registers.
template <int width>
__device__ __forceinline__ Floats<width> whole_block_factors(const DropoutMask& mask, Index element) {
  static_assert(width % 4 == 0);
  Floats<width> factors;
  if (!mask.draws) {
    for (int i = 0; i < width; ++i) factors.x[i] = 1;
    return factors;
  }
  const auto first = static_cast<std::uint64_t>(mask.first + element) / 4;
  for (unsigned block = 0; block < width / 4; ++block) {
    auto low = static_cast<std::uint32_t>(first + block), high = static_cast<std::uint32_t>((first + block) >> 32);
    asm volatile("" : "+r"(low), "+r"(high) : : "memory");
    const Floats<4> drawn = factors_of_block(mask, std::uint64_t{high} << 32 | low);
    for (int i = 0; i < 4; ++i) factors.x[4 * block + unsigned(i)] = drawn.x[i];
  }
  return factors;
}

}  // namespace ABH_BACKEND
}  // namespace abh
