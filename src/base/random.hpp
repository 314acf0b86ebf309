#pragma once

// Counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2,
// 3", SC 2011). A number depends only on (seed, index, step, site). Any thread on any device can compute any element of
// a mask without state, and a backward pass can recompute it.

#include <array>
#include <cstdint>
#include <type_traits>

namespace abh {

// Site: one use of random numbers; docs/architecture.md lists all. layer_site(i, use) is a dropout in a block of layer
// i.
namespace sites {
inline constexpr std::uint32_t initial_weights = 0;
inline constexpr std::uint32_t batch = 1;
inline constexpr std::uint32_t sampling = 2;
inline constexpr std::uint32_t embedding_dropout = 3;
// Sites of the examples of a task: the seed is 0, and the step is the number of the example.
inline constexpr std::uint32_t sort = 4;
inline constexpr std::uint32_t reviews = 5;
inline constexpr std::uint32_t dates = 6;
inline constexpr std::uint32_t digits = 7;
inline constexpr std::uint32_t recall = 8;
inline constexpr std::uint32_t regression = 9;
// Shifts of training images; seed of the run.
inline constexpr std::uint32_t picture_moves = 10;
// Embedding dropout of an encoder; embedding_dropout is for the decoder.
inline constexpr std::uint32_t source_dropout = 11;
// Order of training examples (base/shuffle.hpp); step = epoch.
inline constexpr std::uint32_t order = 12;

enum class LayerUse : std::uint32_t { conv = 0, mixer = 1, mixer_second = 2, ffn = 3, cross = 4 };

inline constexpr std::uint32_t layer_site(std::uint32_t layer, LayerUse use) {
  return 16 + 16 * layer + static_cast<std::uint32_t>(use);
}
}  // namespace sites

using PhiloxBlock = std::array<std::uint32_t, 4>;

// Upper word of the product of two words. nvcc compiles this and the lower word to one wide multiplication; from a
// 64-bit product it generates an extra addition.
inline constexpr std::uint32_t upper_product(std::uint32_t a, std::uint32_t b) {
#ifdef __CUDA_ARCH__
  if (!std::is_constant_evaluated()) return __umulhi(a, b);
#endif
  return static_cast<std::uint32_t>(std::uint64_t{a} * b >> 32);
}

// The four words of `counter` with key `seed`: ten rounds of multiply, swap and xor.
inline constexpr PhiloxBlock philox_block(std::uint64_t seed, PhiloxBlock counter) {
  std::uint32_t key0 = static_cast<std::uint32_t>(seed);
  std::uint32_t key1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    constexpr std::uint32_t factor0 = 0xD2511F53, factor1 = 0xCD9E8D57;
    counter = {upper_product(factor1, counter[2]) ^ counter[1] ^ key0, factor1 * counter[2],
               upper_product(factor0, counter[0]) ^ counter[3] ^ key1, factor0 * counter[0]};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return counter;
}

// Word index % 4 of the block with key (seed low, seed high) and counter (index/4 low, index/4 high, step, site).
inline constexpr std::uint32_t philox_word(std::uint64_t seed, std::uint64_t index, std::uint32_t step,
                                           std::uint32_t site) {
  const std::uint64_t block = index / 4;
  return philox_block(
      seed, {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), step, site})[index % 4];
}

// Uniform number in (0, 1) from a word: the middle of its interval, never 0 or 1.
inline constexpr double uniform_of(std::uint32_t word) { return (static_cast<double>(word) + 0.5) * 0x1p-32; }

// Element `index` of a standard normal sequence (Box-Muller, one cosine per pair of words). Host only, because log and
// cos of the C library are not bitwise the same on every device.
double normal_number(std::uint64_t seed, std::uint64_t index, std::uint32_t step, std::uint32_t site);

}  // namespace abh
