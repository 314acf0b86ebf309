#pragma once

#include <cstdint>

#include "base/random.hpp"
#include "base/types.hpp"

namespace abh {

// Element `i` of a random order of 0 ... n - 1, for 0 <= i < n. Each (seed, epoch) has another order. It is computed
// without a table, so that every process, and a resumed run, finds the elements at any place.
//
// A Feistel network permutes all numbers of 2 H bits: it splits a number in two halves, and each round adds (xor) a
// random function of one half to the other (Luby, Rackoff, "How to construct pseudorandom permutations from
// pseudorandom functions", 1988). A result of n or more is permuted again, until it is below n. This permutes 0 ... n -
// 1 (Black, Rogaway, "Ciphers with arbitrary finite domains", 2002). Word `rounds` half + round of site `order`.
//
// Two bits per half would do for three elements, but few rounds of so small halves do not reach all orders; four bits
// are the least. Then at most 256 / n results are computed on average, for n > 64 at most 4.
inline Index shuffled(Index i, Index n, std::uint64_t seed, std::uint32_t epoch) {
  constexpr std::uint64_t rounds = 8;
  int half_bits = 4;
  while (((n - 1) >> (2 * half_bits)) != 0) ++half_bits;
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
  auto number = static_cast<std::uint64_t>(i);
  do {
    std::uint64_t left = number >> half_bits, right = number & mask;
    for (std::uint64_t round = 0; round < rounds; ++round) {
      const std::uint64_t mixed = left ^ (philox_word(seed, rounds * right + round, epoch, sites::order) & mask);
      left = right;
      right = mixed;
    }
    number = left << half_bits | right;
  } while (number >= static_cast<std::uint64_t>(n));
  return static_cast<Index>(number);
}

}  // namespace abh
