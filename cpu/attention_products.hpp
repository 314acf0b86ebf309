#pragma once

// The products that attention in tiles is made of, and how their operands come to lie as they want them.
//
// All products have one form: the rows of one array are read number by number and broadcast, lanes run along the rows
// of another. In scores the lanes are a group of queries (forward) or of keys (backward); in all that is made from
// scores they are channels. So nothing but that group is ever transposed, once a task.

#include "cpu/lanes.hpp"
#include "cpu/rows.hpp"

#if ABH_LANE_BYTES >= 32
#include <immintrin.h>
#endif

namespace abh {

namespace {

// Two lane vectors: what the inner loop computes at once.
template <class T>
constexpr Index group = 2 * lane_width<T>;

// Rows that the inner loop computes at once: rows x vectors sums, the vectors and a broadcast must fit the registers,
// and there should be 8 sums at least, or each waits for its own last addition. With 12 rows NEON's would fit, too, but
// clang++ moves them around.
template <int vectors>
constexpr int rows_at_once = ABH_LANE_BYTES == 64 || vectors == 1 ? 8
                             : by_element                         ? 11
                                                                  : 6;

// A matrix read number by number: element (row, step) stands at first[row * row_stride + step * step_stride].
template <class T>
struct Broadcast {
  const T* first;
  Index row_stride, step_stride;
};

// Which steps of a row matter: all; those up to a diagonal that ends in the last step of the last row; those from a
// diagonal that begins in the first step of the first row. In the others a[row][step] is 0, and most are left out.
enum class Steps { all, to_diagonal, from_diagonal };

// out[row][lane] (+)= sum_step a[row][step] b[step][lane]
template <class T>
struct Product {
  Rows<T> out;
  Broadcast<T> a;
  Rows<const T> b;
  Index rows, lanes, steps;  // lanes: whole vectors
  bool add = false;
  Steps which = Steps::all;
};

// A block of `rows` rows and a few vectors: its sums stay in registers. They begin with 0 and join at the end what is
// there: so a long sum is one over tiles, whose sums are short (docs/layers/attention.md, Long sums).
template <bool add, int vectors, int rows, class T>
inline __attribute__((always_inline)) void multiply_rows(T* out, Index out_stride, const T* a, Index row_stride,
                                                         Index step_stride, const T* b, Index b_stride, Index steps) {
  using L = Wide<T>;
  constexpr Index width = lane_width<T>;
  L sum[rows][vectors];
  unrolled<rows>([&](auto r) __attribute__((always_inline)) {
    unrolled<vectors>([&](int v) __attribute__((always_inline)) { sum[r][v] = splat<L>(T(0)); });
  });
  for (; steps > 0; --steps) {
    L b_vectors[vectors];
    unrolled<vectors>([&](int v) __attribute__((always_inline)) { b_vectors[v] = load<L>(b + v * width); });
    unrolled<rows>([&](auto r) __attribute__((always_inline)) {
      const T x = a[r * row_stride];
      unrolled<vectors>([&](int v)
                            __attribute__((always_inline)) { sum[r][v] = fused<L>(x, b_vectors[v], sum[r][v]); });
      keep_loads_here();
    });
    a += step_stride;
    b += b_stride;
  }
  unrolled<rows>([&](auto r) __attribute__((always_inline)) {
    unrolled<vectors>([&](int v) __attribute__((always_inline)) {
      store<L>(out + v * width, add ? load<L>(out + v * width) + sum[r][v] : sum[r][v]);
    });
    out += out_stride;
  });
}

// multiply_rows for `count` rows, 1 <= count <= most.
template <bool add, int vectors, int most, class... Arguments>
inline __attribute__((always_inline)) void multiply_some_rows(Index count, Arguments... arguments) {
  if constexpr (most > 0) {
    if (count == most) return multiply_rows<add, vectors, most>(arguments...);
    multiply_some_rows<add, vectors, most - 1>(count, arguments...);
  }
}

template <bool add, int vectors, class T>
__attribute__((noinline)) void multiply_vectors(const Product<T>& p, Index lane) {
  constexpr int most = rows_at_once<vectors>;
  T* out = p.out.first + lane;
  const T* a = p.a.first;
  const T* b = p.b.first + lane;
  const Index out_stride = p.out.stride, row_stride = p.a.row_stride, step_stride = p.a.step_stride,
              b_stride = p.b.stride;
  Index steps = p.steps;
  for (Index left = p.rows; left > 0;) {
    // The last two blocks share what is left, so that none is too small.
    const Index count = left >= 2 * most ? most : left > most ? (left + 1) / 2 : left;
    multiply_some_rows<add, vectors, most>(count, out, out_stride, a, row_stride, step_stride, b, b_stride,
                                           p.which == Steps::to_diagonal ? p.steps - left + count : steps);
    left -= count;
    out += count * out_stride;
    a += count * row_stride;
    if (p.which == Steps::from_diagonal) {
      a += count * step_stride;
      b += count * b_stride;
      steps -= count;
    }
  }
}

template <class T>
void multiply(const Product<T>& p) {
  const auto multiply_from = [&]<int vectors>(Index lane) {
    p.add ? multiply_vectors<true, vectors>(p, lane) : multiply_vectors<false, vectors>(p, lane);
  };
  Index lane = 0;
  for (; lane + group<T> <= p.lanes; lane += group<T>) multiply_from.template operator()<2>(lane);
  if (lane < p.lanes) multiply_from.template operator()<1>(lane);
}

// The lane numbers of a vector.
template <int... numbers>
struct LaneNumbers {};
template <int width>
struct AllLanes;
template <>
struct AllLanes<4> : LaneNumbers<0, 1, 2, 3> {};
template <>
struct AllLanes<8> : LaneNumbers<0, 1, 2, 3, 4, 5, 6, 7> {};
template <>
struct AllLanes<16> : LaneNumbers<0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15> {};

// Within every four lanes, a and b become a0 b0 a1 b1 and a2 b2 a3 b3; a0 a1 b0 b1 and a2 a3 b2 b3.
template <class L, int... i>
inline void interleave_singles(L& a, L& b, LaneNumbers<i...>) {
  const L low = shuffled<(i % 2 * width_of<L> + i - i % 4 + i % 4 / 2)...>(a, b);
  b = shuffled<(i % 2 * width_of<L> + i - i % 4 + i % 4 / 2 + 2)...>(a, b);
  a = low;
}
template <class L, int... i>
inline void interleave_pairs(L& a, L& b, LaneNumbers<i...>) {
  const L low = shuffled<(i % 4 / 2 * width_of<L> + i - i % 4 + i % 2)...>(a, b);
  b = shuffled<(i % 4 / 2 * width_of<L> + i - i % 4 + i % 2 + 2)...>(a, b);
  a = low;
}

// Two vectors as one of twice the width. For g++, shuffles do not change the width.
#if ABH_LANE_BYTES >= 32
inline auto side_by_side(LanesOf<float, 4>::type low, LanesOf<float, 4>::type high) {
  return LanesOf<float, 8>::type(_mm256_set_m128(high, low));
}
#endif
#if ABH_LANE_BYTES >= 64
inline auto side_by_side(LanesOf<float, 8>::type low, LanesOf<float, 8>::type high) {
  return LanesOf<float, 16>::type(_mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1));
}
#endif

// Four channels of row 0, of row 4, ...
template <int width, class T>
inline typename LanesOf<T, width>::type every_fourth_row(const T* const* row_k, Index k) {
  if constexpr (width == 4) {
    typename LanesOf<T, 4>::type four;
    std::memcpy(&four, row_k[0] + k, sizeof(four));
    return four;
  } else {
    return side_by_side(every_fourth_row<width / 2>(row_k, k), every_fourth_row<width / 2>(row_k + width / 2, k));
  }
}

// A lane vector of rows: those from `first` on; past the last row, that one again.
template <class T>
struct LaneRows {
  LaneRows(Rows<const T> x_ck, Index first, Index end) {
    for (Index i = 0; i < lane_width<T>; ++i) row_k[i] = x_ck[min_of(first + i, end - 1)];
  }

  // One channel.
  Wide<T> channel(Index k) const {
    T numbers[lane_width<T>];
    for (int i = 0; i < lane_width<T>; ++i) numbers[i] = row_k[i][k];
    return load<Wide<T>>(numbers);
  }

  // Channels k to k + 3: a transposition in registers.
  void four_channels(Wide<T> (&x)[4], Index k) const {
    if constexpr (lane_width<T> == 1) {
      for (Index i = 0; i < 4; ++i) x[i] = row_k[0][k + i];
    } else {
      constexpr AllLanes<lane_width<T>> lanes;
      for (int i = 0; i < 4; ++i) x[i] = every_fourth_row<lane_width<T>>(row_k + i, k);
      interleave_singles(x[0], x[1], lanes);  // rows 0 and 1 of channels k, k + 1; of channels k + 2, k + 3
      interleave_singles(x[2], x[3], lanes);
      interleave_pairs(x[0], x[2], lanes);  // channels k; k + 1
      interleave_pairs(x[1], x[3], lanes);
      const Wide<T> third = x[1];
      x[1] = x[2];
      x[2] = third;
    }
  }

  const T* row_k[lane_width<T>];
};

template <class T>
void prefetch(Rows<const T> x_ck, Index first, Index end, Index K) {
  for (Index c = first; c < end; ++c) prefetch_row(x_ck[c], K);
}

// out_gkc: for each group of `count` rows its transpose, K x group. Lanes past the last row repeat it.
template <class T>
void transpose_groups(T* out_gkc, Rows<const T> in_ck, Index count, Index K) {
  using L = Wide<T>;
  prefetch(in_ck, 0, count, K);
  for (Index c = 0; c < count; c += lane_width<T>) {
    const LaneRows<T> rows(in_ck, c, count);
    T* out_kc = out_gkc + c / group<T> * group<T> * K + c % group<T>;
    Index k = 0;
    for (; k + 4 <= K; k += 4) {
      L x[4];
      rows.four_channels(x, k);
      for (Index i = 0; i < 4; ++i) store<L>(out_kc + (k + i) * group<T>, x[i]);
    }
    for (; k < K; ++k) store<L>(out_kc + k * group<T>, rows.channel(k));
  }
}

// Channels rounded up to whole vectors: the width of rows whose channels are lanes.
template <class T>
Index padded(Index K) {
  return blocks_of(K, lane_width<T>) * lane_width<T>;
}

// `count` rows of padded(K) channels: those of x_ck where they stand, or copies in `scratch`. Copies touch, where rows
// of one head may lie a page apart; that is worth it for rows that several tiles read (`often`).
template <class T>
Rows<const T> padded_rows(Rows<const T> x_ck, Index count, Index K, bool often, T* scratch) {
  const Index padded_K = padded<T>(K);
  if (K == padded_K && !often) return x_ck;
  for (Index c = 0; c < count; ++c) {
    T* out_k = scratch + c * padded_K;
    for_lanes<T>(K, [&]<class L>(Index k) { store<L>(out_k + k, load<L>(x_ck[c] + k)); });
    for (Index k = K; k < padded_K; ++k) out_k[k] = T(0);
  }
  return {scratch, padded_K};
}

// The K channels of rows that were summed with padding. Nothing to do for sums that already stand in place.
template <class T>
void copy_back(Rows<T> out_ck, Rows<T> in_ck, Index count, Index K) {
  if (out_ck.first == in_ck.first) return;
  for (Index c = 0; c < count; ++c) {
    for_lanes<T>(K, [&]<class L>(Index k) { store<L>(out_ck[c] + k, load<L>(in_ck[c] + k)); });
  }
}

}  // namespace

}  // namespace abh
