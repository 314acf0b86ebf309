#pragma once

// The mask of dropout (layers/dropout.hpp), drawn a run of elements at a time. A mask is never stored: whoever needs
// it, forward or backward, draws it again from the same seed, step, site and element numbers.

#include <cstdint>
#include <cstring>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "cpu/lanes.hpp"
#include "layers/dropout.hpp"

namespace abh {
inline namespace ABH_ISA {

// Elements drawn together. A caller that walks a long array draws runs of this length, from element 0 on: long enough
// to make the preparation of a run cheap, short enough for the first-level cache.
inline constexpr Index dropout_run = 256;

// One Philox block a lane. Every lane is 64 bits wide, but only its low half counts: what a multiplication leaves above
// is never read.
inline constexpr int block_lanes = ABH_LANE_BYTES < 16 ? 2 : ABH_LANE_BYTES / 8;
typedef std::uint64_t BlockLanes __attribute__((vector_size(block_lanes * 8)));

// Product, 64 bits, of the low halves of the lanes with a constant. On x86 that is one instruction, which compilers do
// not find by themselves.
inline BlockLanes low_product(BlockLanes lanes, std::uint32_t factor) {
  const BlockLanes factors = std::uint64_t{factor} - BlockLanes{};
#if defined(__AVX512F__)
  return reinterpret_cast<BlockLanes>(
      _mm512_maskz_mul_epu32(0xFF, reinterpret_cast<__m512i>(lanes), reinterpret_cast<__m512i>(factors)));
#elif defined(__AVX2__)
  return reinterpret_cast<BlockLanes>(
      _mm256_mul_epu32(reinterpret_cast<__m256i>(lanes), reinterpret_cast<__m256i>(factors)));
#elif defined(__SSE2__)
  return reinterpret_cast<BlockLanes>(
      _mm_mul_epu32(reinterpret_cast<__m128i>(lanes), reinterpret_cast<__m128i>(factors)));
#else
  return (lanes & 0xFFFFFFFF) * factors;
#endif
}

// The Philox4x32-10 words (random.hpp) of the blocks [first_block, first_block + blocks), four a block, and of as many
// more as fill the last vector.
inline void philox_words(std::uint32_t* words, std::uint64_t first_block, Index blocks, std::uint64_t seed,
                         std::uint32_t step, std::uint32_t site) {
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "two words are stored as one 64-bit number, low word first");
  BlockLanes lane_numbers;
  for (int i = 0; i < block_lanes; ++i) lane_numbers[i] = static_cast<std::uint64_t>(i);
  for (Index first = 0; first < blocks; first += block_lanes) {
    BlockLanes c0 = lane_numbers + (first_block + static_cast<std::uint64_t>(first));
    BlockLanes c1 = c0 >> 32;
    BlockLanes c2 = std::uint64_t{step} - BlockLanes{};
    BlockLanes c3 = std::uint64_t{site} - BlockLanes{};
    std::uint32_t key0 = static_cast<std::uint32_t>(seed);
    std::uint32_t key1 = static_cast<std::uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round) {
      const BlockLanes product0 = low_product(c0, 0xD2511F53);
      const BlockLanes product1 = low_product(c2, 0xCD9E8D57);
      c0 = (product1 >> 32) ^ c1 ^ key0;
      c1 = product1;
      c2 = (product0 >> 32) ^ c3 ^ key1;
      c3 = product0;
      key0 += 0x9E3779B9;
      key1 += 0xBB67AE85;
    }
    const BlockLanes low = (c0 & 0xFFFFFFFF) | (c1 << 32);
    const BlockLanes high = (c2 & 0xFFFFFFFF) | (c3 << 32);
#if ABH_LANE_BYTES == 64
    const BlockLanes pairs[2] = {__builtin_shufflevector(low, high, 0, 8, 1, 9, 2, 10, 3, 11),
                                 __builtin_shufflevector(low, high, 4, 12, 5, 13, 6, 14, 7, 15)};
#elif ABH_LANE_BYTES == 32
    const BlockLanes pairs[2] = {__builtin_shufflevector(low, high, 0, 4, 1, 5),
                                 __builtin_shufflevector(low, high, 2, 6, 3, 7)};
#else
    const BlockLanes pairs[2] = {__builtin_shufflevector(low, high, 0, 2), __builtin_shufflevector(low, high, 1, 3)};
#endif
    std::memcpy(words + 4 * first, pairs, sizeof(pairs));
  }
}

// factors[i] = what element first + i is multiplied with: 1 / (1 - p) where it is kept, 0 where it is dropped; for
// i in [0, count). 0 < p <= 1: with p = 0 there is nothing to draw, and dropout.state may be null.
template <class T>
inline void dropout_factors(T* factors, const Dropout& dropout, Index first, Index count) {
  // ceil(p 2^32) >= 1 as p > 0; a word is kept when it is larger than last_dropped. With p = 1 none is.
  const std::uint32_t last_dropped =
      static_cast<std::uint32_t>(static_cast<std::uint64_t>(__builtin_ceil(dropout.p * 0x1p32)) - 1);
  const T kept = T(1 / (1 - dropout.p));  // infinite for p = 1, where nothing is kept and it is not used
  const T dropped = T(0);
  std::uint32_t words[dropout_run];
  while (count > 0) {
    const Index skip = first % 4;
    const Index run = count < dropout_run - skip ? count : dropout_run - skip;
    philox_words(words, static_cast<std::uint64_t>(first / 4), (skip + run + 3) / 4, dropout.state->seed,
                 dropout.state->step, dropout.site);
    for (Index i = 0; i < run; ++i) factors[i] = words[skip + i] > last_dropped ? kept : dropped;  // (dropout.1)
    factors += run;
    first += run;
    count -= run;
  }
}

}  // namespace ABH_ISA
}  // namespace abh
