#pragma once

// A tile of the product of gemm.hpp, held in registers, and the packing of its operands. SIMD floats only.

#include "cpu/lanes.hpp"
#include "layers/parts/products.hpp"

namespace abh {
inline namespace ABH_ISA {

inline constexpr int lanes = lane_width<float>;

// A tile fills the registers: 24 sums of 32 registers, 12 sums of 16. With 32 registers of 4 lanes it is as wide as
// with 8 lanes, so that one load of `a` serves more products.
inline constexpr int tile_rows = lanes == 16 ? 12 : 6;
// True if tiles pack the operand `a`. With 16 lanes they never do, and that code would take two fifths of the compile
// time of the products.
inline constexpr bool tiles_pack_a = lanes < 16;
inline constexpr int tile_vectors = by_element ? 4 : 2;
inline constexpr int tile_columns = tile_vectors * lanes;
inline constexpr int half_columns = tile_columns / 2;

// Columns of `b` per block: with a block of K they fit the L2 cache.
inline constexpr Index block_columns = lanes == 16 ? 256 : 128;

// Numbers of a row of `a` that a tile reads in GemmOrder::columns.
inline constexpr int a_reads = (tile_rows + lanes - 1) / lanes * lanes;

using Quad = LanesOf<float, 4>::type;
inline Quad load_quad(const float* from) {
  Quad quad;
  std::memcpy(&quad, from, sizeof(Quad));
  return quad;
}

// Output of a tile: `rows` x `columns` elements are real, the rest is padding.
struct TileTarget {
  float* out_mn;
  Index out_row;
  const float* bias_n;
  Index rows, columns;
  float scale;
  bool accumulate;
  float* row_sum_m = nullptr;
};

template <bool accumulate>
inline void finish_lanes(float* out, const Wide<float>& scale, const Wide<float>& sum) {
  if constexpr (accumulate) {
    store<Wide<float>>(out, load<Wide<float>>(out) + scale * sum);
  } else {
    store<Wide<float>>(out, scale * sum);
  }
}

// Finishes a padded tile, sum_rn (rows, vectors * lanes): the same operations on padded copies.
inline __attribute__((noinline)) void finish_edge(const TileTarget& target, const float* sum_rn, Index row_floats) {
  using L = Wide<float>;
  for (Index r = 0; r < target.rows; ++r) {
    for (Index n = 0; n < target.columns; n += lanes) {
      float* out = target.out_mn + r * target.out_row + n;
      const std::size_t bytes = static_cast<std::size_t>(min_of(lanes, target.columns - n)) * sizeof(float);
      float padded_out[lanes] = {};
      float padded_bias[lanes] = {};
      std::memcpy(padded_out, out, bytes);
      if (target.bias_n) std::memcpy(padded_bias, target.bias_n + n, bytes);
      L sum = load<L>(sum_rn + r * row_floats + n);
      if (target.bias_n) sum += load<L>(padded_bias);
      if (target.accumulate) {
        finish_lanes<true>(padded_out, splat<L>(target.scale), sum);
      } else {
        finish_lanes<false>(padded_out, splat<L>(target.scale), sum);
      }
      std::memcpy(out, padded_out, bytes);
    }
  }
}

// Operands of a tile: element (r, k) of `a` is a[r * a_stride + k] with GemmOrder::rows and a[r + k * a_stride] with
// GemmOrder::columns; element (k, n) of `b` is b[k * b_row + n].
enum class GemmOrder { rows, columns };
struct TileOperands {
  const float* a;
  Index a_stride;
  const float* b;
  Index b_row;
  Index K;
  const float* ahead = nullptr;  // GemmOrder::rows: K numbers to prefetch for a later tile
  // Arrays in which a tile of tile_columns stores its packed operands for later tiles, (K, tile_rows) and (K,
  // tile_columns); `a` only with GemmOrder::columns.
  float* a_panel = nullptr;
  float* b_panel = nullptr;
};

// The contribution after a sum in `out`: sums of the rows of `a`, in a separate loop.
template <int vectors>
inline void sum_rows(const TileTarget& target, const TileOperands& operands) {
  using L = Wide<float>;
  L sum[vectors] = {};
  const float* a = operands.a;
  for (Index k = 0; k < operands.K; ++k, a += operands.a_stride) {
    unrolled<vectors>([&](auto v) __attribute__((always_inline)) { sum[v] += load<L>(a + v * lanes); });
  }
  float sum_r[vectors * lanes];
  unrolled<vectors>([&](auto v) __attribute__((always_inline)) { store<L>(sum_r + v * lanes, sum[v]); });
  for (Index r = 0; r < target.rows; ++r) {
    float& out = target.row_sum_m[r];
    out = target.accumulate ? fused<float>(target.scale, sum_r[r], out) : target.scale * sum_r[r];
  }
}

// Steps of a tile that multiply a SIMD vector by an element of another vector: consecutive numbers of `a` are loaded as
// vectors. A step begins after all loads of the previous step; otherwise sums would be spilled from registers.
template <GemmOrder order, bool keep_a, bool keep_b, int rows, int vectors>
inline __attribute__((always_inline)) void walk_by_element(Wide<float> (&sum)[rows][vectors],
                                                           const TileOperands& operands) {
  using L = Wide<float>;
  constexpr int a_vectors = order == GemmOrder::columns ? (rows + lanes - 1) / lanes : 0;
  const Index a_stride = operands.a_stride, b_row = operands.b_row;
  const float *a = operands.a, *b = operands.b, *ahead = operands.ahead;
  float *a_panel = operands.a_panel, *b_panel = operands.b_panel;
#pragma GCC unroll 1
  for (Index k = 0; k < operands.K; ++k) {
    L b_k[vectors], a_k[a_vectors + 1];
    unrolled<vectors>([&](auto v) __attribute__((always_inline)) { b_k[v] = load<L>(b + v * lanes); });
    unrolled<a_vectors>([&](auto i) __attribute__((always_inline)) {
      constexpr std::size_t kept = min_of(lanes, tile_rows - i * lanes) * sizeof(float);
      a_k[i] = load<L>(a + i * lanes);
      if constexpr (keep_a) std::memcpy(a_panel + i * lanes, &a_k[i], kept);
    });
    if constexpr (keep_a) a_panel += tile_rows;
    if constexpr (keep_b) {
      unrolled<vectors>([&](auto v) __attribute__((always_inline)) { store<L>(b_panel + v * lanes, b_k[v]); });
      b_panel += vectors * lanes;
    }
    if constexpr (order == GemmOrder::rows) __builtin_prefetch(ahead++, 0, 3);
    unrolled<rows>([&](auto r) __attribute__((always_inline)) {
      float a_rk;
      if constexpr (order == GemmOrder::rows) {
        a_rk = a[r * a_stride];
      } else {
        a_rk = a_k[r / lanes][r % lanes];
      }
      unrolled<vectors>([&](auto v) __attribute__((always_inline)) { sum[r][v] = fused<L>(a_rk, b_k[v], sum[r][v]); });
      keep_loads_here();
    });
    a += order == GemmOrder::rows ? 1 : a_stride;
    b += b_row;
  }
}

// Product of `rows` rows of `a` with `vectors` SIMD vectors of `b`.
template <int rows, int vectors, GemmOrder order, bool sums, bool keep_a, bool keep_b>
inline void tile_product(const TileTarget& target, const TileOperands& operands) {
  using L = Wide<float>;
  L sum[rows][vectors];
  unrolled<rows>([&](auto r) __attribute__((always_inline)) {
    unrolled<vectors>([&](auto v) __attribute__((always_inline)) { sum[r][v] = L{}; });
  });
  // Every third row has its own pointer: stride multiples 0 to 2 are then reachable by one addressing mode.
  const Index a_stride = operands.a_stride, b_row = operands.b_row;
  const float* a[order == GemmOrder::rows ? (rows + 2) / 3 : 1];
  unrolled<sizeof(a) / sizeof(a[0])>([&](auto i)
                                         __attribute__((always_inline)) { a[i] = operands.a + 3 * i * a_stride; });
  // Prefetches the output rows, which may not be in cache.
  for (Index r = 0; r < target.rows; ++r) {
    for (int n = 0; n < vectors * lanes; n += 16) __builtin_prefetch(target.out_mn + r * target.out_row + n, 1, 3);
  }
  if constexpr (by_element) {
    if constexpr (sums) sum_rows<(rows + lanes - 1) / lanes>(target, operands);
    walk_by_element<order, keep_a, keep_b>(sum, operands);
  } else {
    const float* b = operands.b;
    constexpr int sum_vectors = sums ? (rows + lanes - 1) / lanes : 0;
    L row_sum[sum_vectors + 1];
    unrolled<sum_vectors>([&](auto v) __attribute__((always_inline)) { row_sum[v] = L{}; });
    const float* ahead = operands.ahead;
    float* a_panel = operands.a_panel;
    float* b_panel = operands.b_panel;
    // Unrolled: in a short loop the misprediction of the last iteration costs 5 %.
#pragma GCC unroll 4
    for (Index k = 0; k < operands.K; ++k) {
      if constexpr (order == GemmOrder::rows) __builtin_prefetch(ahead++, 0, 3);
      // Prefetch for rows far apart, which hardware does not predict. Otherwise narrow SIMD reads packed operands or
      // rows close together, unless `out` has few tiles.
      constexpr Index far = 24;
      if constexpr (keep_a || (order == GemmOrder::columns && lanes == 16)) {
        __builtin_prefetch(a[0] + far * a_stride, 0, 3);
      }
      if constexpr (keep_b || (order == GemmOrder::columns && lanes == 16)) {
        for (int n = 0; n < vectors * lanes; n += 16) __builtin_prefetch(b + far * b_row + n, 0, 3);
      }
      unrolled<sum_vectors>([&](auto v) __attribute__((always_inline)) { row_sum[v] += load<L>(a[0] + v * lanes); });
      L b_k[vectors];
      unrolled<vectors>([&](auto v) __attribute__((always_inline)) { b_k[v] = load<L>(b + v * lanes); });
      if constexpr (keep_a) {
        // Through integer registers, because the sums occupy all others.
        unrolled<tile_rows / 2>([&](auto i) __attribute__((always_inline)) {
          std::uint64_t two;
          std::memcpy(&two, a[0] + 2 * i, sizeof(two));
          std::memcpy(a_panel + 2 * i, &two, sizeof(two));
        });
        a_panel += tile_rows;
      }
      if constexpr (keep_b) {
        unrolled<vectors>([&](auto v) __attribute__((always_inline)) { store<L>(b_panel + v * lanes, b_k[v]); });
        b_panel += vectors * lanes;
      }
      unrolled<rows>([&](auto r) __attribute__((always_inline)) {
        const float a_rk = order == GemmOrder::rows ? a[r / 3][r % 3 * a_stride] : a[0][r];
        unrolled<vectors>([&](auto v)
                              __attribute__((always_inline)) { sum[r][v] = fused<L>(a_rk, b_k[v], sum[r][v]); });
      });
      unrolled<sizeof(a) / sizeof(a[0])>([&](auto i) __attribute__((always_inline)) {
        a[i] += order == GemmOrder::rows ? 1 : a_stride;
      });
      b += b_row;
    }

    if constexpr (sums) {
      float sum_r[sum_vectors * lanes];
      unrolled<sum_vectors>([&](auto v) __attribute__((always_inline)) { store<L>(sum_r + v * lanes, row_sum[v]); });
      ABH_INDEPENDENT_TURNS
      for (Index r = 0; r < target.rows; ++r) {
        float& out = target.row_sum_m[r];
        out = target.accumulate ? fused<float>(target.scale, sum_r[r], out) : target.scale * sum_r[r];
      }
    }
  }
  if (target.rows == rows && target.columns == vectors * lanes) {
    // Branches outside the loops over sums, with local copies: for the compiler, a store could change `target`.
    const Index out_row = target.out_row;
    const L scale = splat<L>(target.scale);
    float* out[(rows + 2) / 3];
    unrolled<(rows + 2) / 3>([&](auto i) __attribute__((always_inline)) { out[i] = target.out_mn + 3 * i * out_row; });
    if (const float* bias = target.bias_n) {
      L bias_n[vectors];
      unrolled<vectors>([&](auto v) __attribute__((always_inline)) { bias_n[v] = load<L>(bias + v * lanes); });
      unrolled<rows>([&](auto r) __attribute__((always_inline)) {
        unrolled<vectors>([&](auto v) __attribute__((always_inline)) { sum[r][v] += bias_n[v]; });
      });
    }
    const auto finish = [&]<bool accumulate>() __attribute__((always_inline)) {
      unrolled<rows>([&](auto r) __attribute__((always_inline)) {
        unrolled<vectors>([&](auto v) __attribute__((always_inline)) {
          finish_lanes<accumulate>(out[r / 3] + r % 3 * out_row + v * lanes, scale, sum[r][v]);
        });
      });
    };
    if (target.accumulate) {
      finish.template operator()<true>();
    } else {
      finish.template operator()<false>();
    }
  } else {
    // Through memory: sums that live across a function call would be kept out of registers in the loop too.
    alignas(64) float sum_rn[rows * vectors * lanes];
    unrolled<rows>([&](auto r) __attribute__((always_inline)) {
      unrolled<vectors>([&](auto v) __attribute__((always_inline)) {
        store<L>(sum_rn + (r * vectors + v) * lanes, sum[r][v]);
      });
    });
    finish_edge(target, sum_rn, vectors * lanes);
  }
}

// The same for the columns of `target`, packing the operands that `operands` requests.
template <int rows, GemmOrder order, bool sums>
inline void tile_of_rows(const TileTarget& target, const TileOperands& operands) {
  const auto product = [&]<int vectors, bool keep_a, bool keep_b>() {
    tile_product<rows, vectors, order, sums, keep_a, keep_b>(target, operands);
  };
  if (target.columns <= half_columns) return product.template operator()<tile_vectors / 2, false, false>();
  if constexpr (order == GemmOrder::rows) {
    if (operands.b_panel) return product.template operator()<tile_vectors, false, true>();
  } else {
    if constexpr (tiles_pack_a) {
      if (operands.a_panel && operands.b_panel) return product.template operator()<tile_vectors, true, true>();
      if (operands.a_panel) return product.template operator()<tile_vectors, true, false>();
    }
    if (operands.b_panel) return product.template operator()<tile_vectors, false, true>();
  }
  product.template operator()<tile_vectors, false, false>();
}

// True if the part below the diagonal is not used (Gemm::upper) and contains the whole tile that begins at (m, n).
template <class T, class Out>
inline bool is_unused(const Gemm<T, Out>& g, Index m, Index n) {
  return g.upper && n + tile_columns <= m;
}

// Smallest product that covers the real part of the tile: an even number of rows, half or all of the columns. It reads
// this many elements, so smaller operands must be padded.
template <GemmOrder order>
inline void multiply_tile(const TileTarget& target, const TileOperands& operands) {
  unrolled<tile_rows / 2>([&](auto i) __attribute__((always_inline)) {
    constexpr int rows = 2 * (i + 1);
    if (target.rows != rows && target.rows != rows - 1) return;
    if constexpr (order == GemmOrder::columns) {
      if (target.row_sum_m) return tile_of_rows<rows, order, true>(target, operands);
    }
    tile_of_rows<rows, order, false>(target, operands);
  });
}

inline void copy_few(float* to, const float* from, Index count) {
  ABH_INDEPENDENT_TURNS
  for (Index i = 0; i < count; ++i) to[i] = from[i];
}

// Packs rows of `from` (K, columns), row stride `stride`, into panels of `width` columns, each (K, width) and `panel`
// numbers apart; the last panel is zero-padded. Not inlined, because it would take registers from the callers' loops.
template <int width>
__attribute__((noinline)) void pack_rows(float* panels, Index panel, const float* from, Index stride, Index columns,
                                         Index K) {
  constexpr Index line = 16, ahead = 4;
  for (Index k = 0; k < K; ++k) {
    const float* row = from + k * stride;
    float* to = panels + k * width;
    for (Index n = 0; n < columns; n += line) __builtin_prefetch(row + ahead * stride + n, 0, 3);
    Index n = 0;
    for (; n + width <= columns; n += width, to += panel) std::memcpy(to, row + n, width * sizeof(float));
    if (n < columns) {
      float padded[width] = {};
      copy_few(padded, row + n, columns - n);
      std::memcpy(to, padded, sizeof(padded));
    }
  }
}

// The same for one panel of a transposed `from`: element (k, n) is from[n * stride + k]. Transposes 4 x 4 in registers,
// one cache line of every column at a time, with a prefetch distance of two lines.
inline void pack_transposed(float* panel, const float* from, Index stride, Index columns, Index K) {
  constexpr Index line = 16;
  for (Index begin = 0; begin < K; begin += line) {
    const Index end = min_of(K, begin + line);
    for (Index n = 0; n < columns; ++n) __builtin_prefetch(from + n * stride + begin + 2 * line, 0, 3);
    for (Index n = 0; n < tile_columns; n += 4) {
      Index k = begin;
      for (; n + 4 <= columns && k + 4 <= end; k += 4) {
        const float* corner = from + n * stride + k;
        const Quad r0 = load_quad(corner), r1 = load_quad(corner + stride);
        const Quad r2 = load_quad(corner + 2 * stride), r3 = load_quad(corner + 3 * stride);
        const Quad low01 = shuffled<0, 4, 1, 5>(r0, r1);
        const Quad low23 = shuffled<0, 4, 1, 5>(r2, r3);
        const Quad high01 = shuffled<2, 6, 3, 7>(r0, r1);
        const Quad high23 = shuffled<2, 6, 3, 7>(r2, r3);
        const Quad columns_of[4] = {shuffled<0, 1, 4, 5>(low01, low23), shuffled<2, 3, 6, 7>(low01, low23),
                                    shuffled<0, 1, 4, 5>(high01, high23), shuffled<2, 3, 6, 7>(high01, high23)};
        for (int i = 0; i < 4; ++i) std::memcpy(panel + (k + i) * tile_columns + n, &columns_of[i], sizeof(Quad));
      }
      for (; k < end; ++k) {
        for (Index i = n; i < n + 4; ++i) panel[k * tile_columns + i] = i < columns ? from[i * stride + k] : 0.0f;
      }
    }
  }
}

// For the first tile that reads a panel of `b`: `columns` columns are at b_kn, rows of `b` are b_row apart. A
// full-width tile reads the panel in place and stores a copy at `panel`; a narrower panel is packed now.
inline void pack_in_passing(TileOperands& operands, float* panel, const float* b_kn, Index b_row, Index columns) {
  const bool whole = columns >= tile_columns;
  if (!whole) pack_rows<tile_columns>(panel, 0, b_kn, b_row, columns, operands.K);
  operands.b = whole ? b_kn : panel;
  operands.b_row = whole ? b_row : Index{tile_columns};
  operands.b_panel = whole ? panel : nullptr;
}

}  // namespace ABH_ISA
}  // namespace abh
