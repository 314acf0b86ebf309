#pragma once

// The matrix products of tiled attention, and the layout of their operands.
//
// All products have one form: elements of the first operand are broadcast, and SIMD lanes run along the rows of the
// second operand. For scores, the lanes are a group of queries (forward) or of keys (backward); for all other products
// they are channels. Therefore only this group is transposed, once per task.

#include "cpu/lanes.hpp"
#include "cpu/rows.hpp"

#if ABH_LANE_BYTES >= 32
#include <immintrin.h>
#endif

namespace abh {

namespace {

// Two SIMD vectors: the width of the inner loop.
template <class T>
constexpr Index group = 2 * lane_width<T>;

// Rows of the inner loop. The rows x vectors sums, the vectors and one broadcast must fit the registers. At least 8
// sums are needed to hide the latency of an addition. With NEON 12 rows would fit too, but clang++ then inserts
// register moves.
template <int vectors>
constexpr int rows_at_once = ABH_LANE_BYTES == 64 || vectors == 1 ? 8
                             : by_element                         ? 11
                                                                  : 6;

// A matrix read element by element: element (row, step) is first[row * row_stride + step * step_stride].
template <class T>
struct Broadcast {
  const T* first;
  Index row_stride, step_stride;
};

// Steps of a row that are not 0: all; up to a diagonal that ends in the last step of the last row; from a diagonal that
// begins in the first step of the first row. Most zero elements a[row][step] are skipped.
enum class Steps { all, to_diagonal, from_diagonal };

// out[row][lane] (+)= sum_step a[row][step] b[step][lane]
template <class T>
struct Product {
  Rows<T> out;
  Broadcast<T> a;
  Rows<const T> b;
  Index rows, lanes, steps;  // lanes: a multiple of the SIMD width
  bool add = false;
  Steps which = Steps::all;
};

// A block of `rows` rows and a few SIMD vectors, with its sums in registers. The sums begin with 0 and are added to
// `out` at the end, so a long sum consists of short partial sums (docs/layers/attention.md, Long sums).
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
    // The last two blocks share the remaining rows, so that neither is too small.
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

// Lane indices of a vector.
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

// Concatenates two vectors. In g++, shuffles do not change the width.
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

// Four channels of row 0, of row 4, and so on.
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

// A SIMD vector of rows from `first` on; past the last row, the last row is repeated.
template <class T>
struct LaneRows {
  LaneRows(Rows<const T> x_ck, Index first, Index end) {
    for (Index i = 0; i < lane_width<T>; ++i) row_k[i] = x_ck[min_of(first + i, end - 1)];
  }

  // One channel of these rows.
  Wide<T> channel(Index k) const {
    T numbers[lane_width<T>];
    for (int i = 0; i < lane_width<T>; ++i) numbers[i] = row_k[i][k];
    return load<Wide<T>>(numbers);
  }

  // Channels k to k + 3: a 4 x 4 transpose in registers.
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

// out_gkc: transpose of each group of `count` rows, K x group. Lanes past the last row repeat it.
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

// Number of channels rounded up to whole SIMD vectors: the row width if lanes are channels.
template <class T>
Index padded(Index K) {
  return blocks_of(K, lane_width<T>) * lane_width<T>;
}

// `count` rows of padded(K) channels: x_ck itself, or copies in `scratch`. Copies are contiguous, whereas rows of one
// head can be a page apart; copying pays for rows that several tiles read (`often`).
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

// Copies the K channels of rows that were summed with padding. Does nothing for sums computed in place.
template <class T>
void copy_back(Rows<T> out_ck, Rows<T> in_ck, Index count, Index K) {
  if (out_ck.first == in_ck.first) return;
  for (Index c = 0; c < count; ++c) {
    for_lanes<T>(K, [&]<class L>(Index k) { store<L>(out_ck[c] + k, load<L>(in_ck[c] + k)); });
  }
}

}  // namespace

}  // namespace abh
