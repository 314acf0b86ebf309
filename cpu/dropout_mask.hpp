#pragma once

// Mask of dropout (layers/dropout.hpp), drawn for a run of elements at a time. It is never stored: forward and backward
// draw it from the same seed, step, site and element indices.

#include <bit>
#include <cstdint>
#include <cstring>
#if defined(__SSE2__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#include "cpu/lanes.hpp"
#include "cpu/math.hpp"
#include "layers/dropout.hpp"

namespace abh {
inline namespace ABH_ISA {

// Elements per run. Callers process long arrays in runs of this length, starting at element 0. It is long enough to
// amortise the preparation of a run and short enough for the L1 cache.
inline constexpr Index dropout_run = 384;

// One Philox block per lane. A lane has 64 bits, but only its low half counts; the high half of a product is never
// read.
inline constexpr int block_lanes = ABH_LANE_BYTES < 16 ? 2 : ABH_LANE_BYTES / 8;
typedef std::uint64_t BlockLanes __attribute__((vector_size(block_lanes * 8)));

// Words of half as many blocks, for comparison as signed numbers.
inline constexpr int word_lanes = 2 * block_lanes;
typedef std::int32_t WordLanes __attribute__((vector_size(word_lanes * 4)));

// 64-bit product of the low halves of the lanes with a constant. On x86 it is one instruction, which compilers do not
// find; ARM has no product of 64-bit lanes, but two instructions for this one.
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
#elif defined(__ARM_NEON) && ABH_LANE_BYTES <= 16
  return reinterpret_cast<BlockLanes>(
      vmull_u32(vmovn_u64(reinterpret_cast<uint64x2_t>(lanes)), vmovn_u64(reinterpret_cast<uint64x2_t>(factors))));
#else
  return (lanes & 0xFFFFFFFF) * factors;
#endif
}

// swapped: the halves of every lane; low_and_high: the low halves of a, the high halves of b; even_lanes, odd_lanes:
// (a0, b0, a2, b2, ...) and (a1, b1, a3, b3, ...). All stay within 128 bits, where x86 needs one instruction for each.
#if ABH_LANE_BYTES == 64
inline WordLanes swapped(WordLanes a) { return shuffled<1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14>(a, a); }
inline WordLanes low_and_high(WordLanes a, WordLanes b) {
  return shuffled<0, 17, 2, 19, 4, 21, 6, 23, 8, 25, 10, 27, 12, 29, 14, 31>(a, b);
}
inline BlockLanes even_lanes(BlockLanes a, BlockLanes b) { return shuffled<0, 8, 2, 10, 4, 12, 6, 14>(a, b); }
inline BlockLanes odd_lanes(BlockLanes a, BlockLanes b) { return shuffled<1, 9, 3, 11, 5, 13, 7, 15>(a, b); }
#elif ABH_LANE_BYTES == 32
inline WordLanes swapped(WordLanes a) { return shuffled<1, 0, 3, 2, 5, 4, 7, 6>(a, a); }
inline WordLanes low_and_high(WordLanes a, WordLanes b) { return shuffled<0, 9, 2, 11, 4, 13, 6, 15>(a, b); }
inline BlockLanes even_lanes(BlockLanes a, BlockLanes b) { return shuffled<0, 4, 2, 6>(a, b); }
inline BlockLanes odd_lanes(BlockLanes a, BlockLanes b) { return shuffled<1, 5, 3, 7>(a, b); }
#else
inline WordLanes swapped(WordLanes a) { return shuffled<1, 0, 3, 2>(a, a); }
inline WordLanes low_and_high(WordLanes a, WordLanes b) { return shuffled<0, 5, 2, 7>(a, b); }
inline BlockLanes even_lanes(BlockLanes a, BlockLanes b) { return shuffled<0, 2>(a, b); }
inline BlockLanes odd_lanes(BlockLanes a, BlockLanes b) { return shuffled<1, 3>(a, b); }
#endif

// Generator Philox4x32-10 (random.hpp) with one seed, step and site.
//
// A round swaps the halves of its products. The high half of a product is combined with the key of its own round, the
// low half, one round later, with that of the next. One xor with both keys therefore serves two rounds; every other
// round does it.
class Philox {
 public:
  Philox(std::uint64_t seed, std::uint32_t step, std::uint32_t site) : step_(step), site_(site) {
    std::uint32_t key0 = static_cast<std::uint32_t>(seed);
    std::uint32_t key1 = static_cast<std::uint32_t>(seed >> 32);
    for (int pair = 0; pair < pairs; ++pair) {
      const std::uint32_t next_key0 = key0 + 0x9E3779B9, next_key1 = key1 + 0xBB67AE85;
      const std::uint32_t flip = pair == pairs - 1 ? sign : 0;
      keys0_[pair] = (std::uint64_t{key0} << 32 | (next_key0 ^ flip)) - BlockLanes{};
      keys1_[pair] = (std::uint64_t{key1} << 32 | (next_key1 ^ flip)) - BlockLanes{};
      key0 = next_key0 + 0x9E3779B9;
      key1 = next_key1 + 0xBB67AE85;
    }
  }

  // Words of the blocks from first_block on, in order, with the highest bit flipped: signed comparison then orders them
  // as unsigned words. `group` independent vectors of blocks hide the latency of a round.
  template <int group>
  void draw(WordLanes (&words)[2 * group], std::uint64_t first_block) const {
    BlockLanes block_of_lane;  // order of blocks that even_lanes and odd_lanes turn into sequential order
    for (std::uint64_t i = 0; i < block_lanes; ++i) block_of_lane[i] = i / 2 + i % 2 * block_lanes / 2;
    Counters c[group];
    for (int g = 0; g < group; ++g) {
      c[g].c0 = block_of_lane + (first_block + std::uint64_t{block_lanes} * static_cast<std::uint64_t>(g));
      c[g].c1 = c[g].c0 >> 32;
      c[g].c2 = std::uint64_t{step_} - BlockLanes{};
      c[g].c3 = std::uint64_t{site_} - BlockLanes{};
    }
    for (int pair = 0; pair < pairs - 1; ++pair) {
      for (int g = 0; g < group; ++g) next_round(c[g], keys0_[pair], keys1_[pair]);
      for (int g = 0; g < group; ++g) next_round(c[g], BlockLanes{}, BlockLanes{});
    }
    for (int g = 0; g < group; ++g) next_round(c[g], keys0_[pairs - 1], keys1_[pairs - 1]);
    // The last round keeps both halves of every lane: words 0 and 1, words 2 and 3.
    const WordLanes flip_high = reinterpret_cast<WordLanes>((std::uint64_t{sign} << 32) - BlockLanes{});
    const auto last_round = [&](BlockLanes product, BlockLanes other) {
      // On a big-endian machine the high half of a lane comes first, so nothing is swapped.
      if (std::endian::native == std::endian::big) return product ^ (other << 32) ^ std::uint64_t{sign};
      return reinterpret_cast<BlockLanes>(swapped(reinterpret_cast<WordLanes>(product)) ^
                                          low_and_high(reinterpret_cast<WordLanes>(other), flip_high));
    };
    for (int g = 0; g < group; ++g) {
      const BlockLanes front = last_round(low_product(c[g].c2, multiplier1), c[g].c1);
      const BlockLanes back = last_round(low_product(c[g].c0, multiplier0), c[g].c3);
      words[2 * g] = reinterpret_cast<WordLanes>(even_lanes(front, back));
      words[2 * g + 1] = reinterpret_cast<WordLanes>(odd_lanes(front, back));
    }
  }

 private:
  struct Counters {
    BlockLanes c0, c1, c2, c3;
  };

  static void next_round(Counters& c, BlockLanes keys0, BlockLanes keys1) {
    const BlockLanes product0 = low_product(c.c0, multiplier0) ^ keys1;
    const BlockLanes product1 = low_product(c.c2, multiplier1) ^ keys0;
    c.c0 = (product1 >> 32) ^ c.c1;
    c.c1 = product1;
    c.c2 = (product0 >> 32) ^ c.c3;
    c.c3 = product0;
  }

  static constexpr int pairs = 5;  // of rounds
  static constexpr std::uint32_t multiplier0 = 0xD2511F53, multiplier1 = 0xCD9E8D57, sign = 0x80000000;
  std::uint32_t step_, site_;
  BlockLanes keys0_[pairs], keys1_[pairs];
};

// factors[i] = factor of element first + i for i in [0, count): 1 / (1 - p) if kept, 0 if dropped. 0 < p <= 1; for p =
// 0 nothing is drawn and dropout.state may be null.
template <class T>
inline void dropout_factors(T* factors, const Dropout& dropout, Index first, Index count) {
  constexpr int group = 3;
  constexpr Index drawn_together = 2 * group * word_lanes;
  static_assert(dropout_run % drawn_together == 0);
  // ceil(p 2^32) >= 1, because p > 0. A word is kept if it is larger than last_dropped; with p = 1 none is.
  const std::uint32_t last_dropped =
      static_cast<std::uint32_t>(static_cast<std::uint64_t>(__builtin_ceil(dropout.p * 0x1p32)) - 1);
  const std::int32_t last_dropped_flipped = static_cast<std::int32_t>(last_dropped ^ 0x80000000);
  const T kept = T(1 / (1 - dropout.p));  // infinite for p = 1; then nothing is kept and it is not used
  const Philox philox(dropout.state->seed, dropout.state->step, dropout.site);
  first += dropout.first;
  for (const Index end = first + count; first < end;) {
    // Whole groups are written directly; at the ends, only the needed part is copied.
    const Index skip = first % 4;
    const Index size = min_of(end - first, drawn_together - skip);
    T drawn[drawn_together];
    T* const to = size == drawn_together ? factors : drawn;
    WordLanes words[2 * group];
    philox.draw<group>(words, static_cast<std::uint64_t>(first / 4));
    for (int v = 0; v < 2 * group; ++v) {
      const WordLanes kept_lanes = words[v] > last_dropped_flipped;  // (dropout.1)
      if constexpr (is_float<T>) {
        const WordLanes factor = kept_lanes & bits_as<std::int32_t>(kept);
        std::memcpy(to + v * word_lanes, &factor, sizeof(factor));
      } else {
        for (int i = 0; i < word_lanes; ++i) to[v * word_lanes + i] = kept_lanes[i] ? kept : T(0);
      }
    }
    if (to == drawn) {
      for (Index i = 0; i < size; ++i) factors[i] = drawn[skip + i];
    }
    factors += size;
    first += size;
  }
}

}  // namespace ABH_ISA
}  // namespace abh
