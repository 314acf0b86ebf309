#pragma once

// Panels of bf16 pairs: two consecutive elements along k form one word, the first in the low half. If K is odd, the
// last pair ends with a zero.

#include "cpu/gemm/gemm_narrow.hpp"

namespace abh {
inline namespace ABH_ISA {

using Pair = std::uint32_t;

// Rows of pairs: pair i of row r is first[r * row + i * step].
struct PairRows {
  const Pair* first;
  Index row, step;
};

// Copies the pairs of a row of `count` numbers, zero-padded to `size` words.
inline void copy_pairs(Pair* to, const bf16* from, Index count, Index size) {
  constexpr Index vector = lane_width<float>;
  Index i = 0;
  for (; 2 * (i + vector) <= count; i += vector) std::memcpy(to + i, from + 2 * i, vector * sizeof(Pair));
  for (; 2 * i + 1 < count; ++i) to[i] = Pair{from[2 * i].bits} | Pair{from[2 * i + 1].bits} << 16;
  for (; i < size; ++i) to[i] = 2 * i < count ? Pair{from[2 * i].bits} : 0;
}

// Interleaves two rows into `count` pairs, zero-padded to `width`. If a row has `readable` numbers, whole vectors are
// read and written, up to one vector beyond the width.
inline void interleave_rows(Pair* to, const bf16* first, const bf16* second, Index count, Index readable, Index width) {
  using L = Wide<float>;
  Index i = 0;
  for (; i < count && i + width_of<L> <= readable; i += width_of<L>) {
    HalfWordsOf<L> low, high;
    std::memcpy(&low, first + i, sizeof(low));
    std::memcpy(&high, second + i, sizeof(high));
    const WordsOf<L> pairs = widened_words<L>(low) | widened_words<L>(high) << 16;
    std::memcpy(to + i, &pairs, sizeof(pairs));
  }
  for (; i < count; ++i) to[i] = Pair{first[i].bits} | Pair{second[i].bits} << 16;
  for (i = count; i < width; ++i) to[i] = 0;
}

// out[step * out_row + n] = rows[n * stride + step], for `count` rows of `steps` words; zeros for n up to `width`, a
// multiple of four. Transposes 4 x 4 in registers.
inline void transpose_words(Pair* out, Index out_row, Index width, const Pair* rows, Index stride, Index count,
                            Index steps) {
  using Four = LanesOf<Pair, 4>::type;
  const auto four = [](const Pair* from) {
    Four words;
    std::memcpy(&words, from, sizeof(words));
    return words;
  };
  for (Index n = 0; n < width; n += 4) {
    Index step = 0;
    for (; n + 4 <= count && step + 4 <= steps; step += 4) {
      const Pair* corner = rows + n * stride + step;
      const Four r0 = four(corner), r1 = four(corner + stride), r2 = four(corner + 2 * stride),
                 r3 = four(corner + 3 * stride);
      const Four low01 = shuffled<0, 4, 1, 5>(r0, r1), low23 = shuffled<0, 4, 1, 5>(r2, r3);
      const Four high01 = shuffled<2, 6, 3, 7>(r0, r1), high23 = shuffled<2, 6, 3, 7>(r2, r3);
      const Four columns[4] = {shuffled<0, 1, 4, 5>(low01, low23), shuffled<2, 3, 6, 7>(low01, low23),
                               shuffled<0, 1, 4, 5>(high01, high23), shuffled<2, 3, 6, 7>(high01, high23)};
      for (int i = 0; i < 4; ++i) std::memcpy(out + (step + i) * out_row + n, &columns[i], sizeof(Four));
    }
    for (; step < steps; ++step) {
      for (Index i = n; i < n + 4; ++i) out[step * out_row + i] = i < count ? rows[i * stride + step] : 0;
    }
  }
}

// Numbers that pack_pairs writes after a panel whose width is not that of a SIMD vector.
inline constexpr Index pair_slack = lane_width<float>;

// Packs columns [n, n + count_n) and rows [k, k + count) of a matrix with N columns; element (k, n) is first[k * row +
// n * col], and row or col is 1. Result: panel[step * width + n], `steps` steps.
template <int width>
void pack_pairs(Pair* panel, const bf16* first, Index row, Index col, Index n, Index count_n, Index N, Index k,
                Index count, Index steps) {
  if (col == 1) {
    constexpr Index vector = lane_width<float>;
    const bf16 zeros[blocks_of(width, vector) * vector] = {};
    for (Index step = 0; step < steps; ++step) {
      const bf16* pair = first + (k + 2 * step) * row + n;
      const Index left = count - 2 * step;
      if (left > rows_ahead) {
        __builtin_prefetch(pair + rows_ahead * row);
        __builtin_prefetch(pair + (rows_ahead + 1) * row);
      }
      interleave_rows(panel + step * width, pair, left > 1 ? pair + row : zeros, left > 0 ? count_n : 0, N - n, width);
    }
    return;
  }
  constexpr Index piece = 32;
  alignas(64) Pair rows[width * piece];
  for (Index begin = 0; begin < steps; begin += piece) {
    const Index size = min_of(piece, steps - begin), numbers = max_of(min_of(2 * size, count - 2 * begin), 0);
    for (Index i = 0; i < count_n; ++i) {
      copy_pairs(rows + i * piece, first + (n + i) * col + k + 2 * begin, numbers, size);
    }
    transpose_words(panel + begin * width, width, width, rows, piece, count_n, size);
  }
}

}  // namespace ABH_ISA
}  // namespace abh
