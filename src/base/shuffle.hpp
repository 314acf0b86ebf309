#pragma once

#include <cstdint>

#include "base/random.hpp"
#include "base/types.hpp"

namespace abh {

// Element `i` of a random order of the n numbers from 0 on, for 0 <= i < n. Each (seed, epoch) has another order. It is
// computed without a table: a process or a resumed run can ask for any element.
//
// A Feistel network permutes all numbers of 2 half_bits bits. It splits a number in two halves. Each round replaces one
// half by its xor with a random word that depends on the other half: word `rounds` half + round of site `order` (Luby,
// Rackoff, "How to construct pseudorandom permutations from pseudorandom functions", 1988). A result of n or more is
// permuted again, until it is below n. This permutes the numbers below n (Black, Rogaway, "Ciphers with arbitrary
// finite domains", 2002).
//
// Halves have at least four bits, so that the order of a few numbers depends on many random words. On average a number
// passes through the network at most 256 / n times for n <= 256, and at most 4 times for larger n.
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
