#pragma once

#include <algorithm>
#include <vector>

#include "base/types.hpp"

namespace abh {

// Adds the arrays of `size` processes, a power of two, element by element as a balanced binary tree over the ranks
// (all-reduce by recursive halving). This function is the part of process `rank`; all processes get the sum. In each
// halving round two processes exchange halves of their data, and each adds one half: first neighbours, then processes
// at distance two, and so on. The same rounds in reverse order distribute the sums.
//
//   exchange(partner, out, out_count, in, in_count)   sends `out` to process `partner`, and receives `in` from there
//   add(to, from, count)                              to_i = to_i + from_i, of two numbers, in any order
//
// `received`: room for (count + 1) / 2 numbers. Every process sends and receives 2 (1 - 1 / size) count numbers.
template <class T, class Exchange, class Add>
void sum_by_halving(T* values, Index count, T* received, Index rank, Index size, const Exchange& exchange,
                    const Add& add) {
  struct Part {
    T* first;
    Index count;
  };
  Part held{values, count};
  std::vector<Part> given;
  for (Index distance = 1; distance < size; distance *= 2) {
    const Part lower{held.first, held.count / 2}, upper{held.first + lower.count, held.count - lower.count};
    const bool keeps_upper = (rank & distance) != 0;
    held = keeps_upper ? upper : lower;
    given.push_back(keeps_upper ? lower : upper);
    exchange(rank ^ distance, given.back().first, given.back().count, received, held.count);
    add(held.first, received, held.count);
  }
  for (Index distance = size / 2; distance > 0; distance /= 2) {
    const Part other = given.back();
    given.pop_back();
    exchange(rank ^ distance, held.first, held.count, other.first, other.count);
    held = {std::min(held.first, other.first), held.count + other.count};
  }
}

}  // namespace abh
