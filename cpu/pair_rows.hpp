#pragma once

// Rows of long sums, for float, with the SIMD width of this instruction set.

#include "cpu/attention_tiles.hpp"
#include "cpu/math.hpp"

namespace abh {

namespace {

// Long sums as compensated pairs, without accumulated rounding errors.
template <class T>
struct PairRows {
  Rows<T> high, low;

  PairRows(T* memory, Index count, Index KP) : high{memory, KP}, low{memory + count * KP, KP} {}
  static Index numbers(Index count, Index KP) { return 2 * count * KP; }

  void clear(Index count) const {
    clear_rows(high, count, high.stride);
    clear_rows(low, count, high.stride);
  }
  void add(Index c, Index k, const Wide<T>& x) const {
    using L = Wide<T>;
    L sum = load<L>(high[c] + k), rest = load<L>(low[c] + k);
    add_compensated(sum, rest, x);
    store<L>(high[c] + k, sum);
    store<L>(low[c] + k, rest);
  }
  void add_rows(Rows<const T> x_ck, Index count) const {
    for (Index c = 0; c < count; ++c) {
      for (Index k = 0; k < high.stride; k += lane_width<T>) add(c, k, load<Wide<T>>(x_ck[c] + k));
    }
  }
};

}  // namespace

}  // namespace abh
