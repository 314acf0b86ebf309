#pragma once

// out_mn = scale (a_mk b_kn + bias_n), or the same added to out_mn: the matrix product behind `linear`. Element (m, k)
// of `a` stands at a_mk[m * a_row + k * a_col], so that a transposed matrix is one with its strides exchanged.
//
// gemm() picks a version of the product:
//   reference_gemm  the readable one, for any scalar and any strides; what the others are tested against
//   row_gemm        floats, rows of `a` contiguous (forward, gradient of the input): every worker packs the columns of
//                   `b` that it reads, unless `b` is small and stands right and lanes are wide
//   dot_gemm        the same with few rows (inference): `b` is read once, where it stands
//   column_gemm     floats, columns of `a` contiguous (gradient of the weight), `out` of few tiles: operands are read
//                   where they stand
//   packed_column_gemm  the same for all else: `b`, or both operands, are packed on the way
//
// All but the first and dot_gemm hold a tile of `out` in registers and walk along k: a step loads a row of `b` in a few
// lane vectors and multiplies it by a column of `a`, element by element. Every element is summed in the order of k
// within a block of K and over the blocks in order, whichever thread computes it; in row_gemm also whichever row it
// stands in.

#include "cpu/lanes.hpp"
#include "cpu/math.hpp"

namespace abh {
inline namespace ABH_ISA {

template <class T>
struct Gemm {
  T* out_mn;
  const T* a_mk;
  const T* b_kn;
  const T* bias_n = nullptr;
  Index M, N, K;
  Index out_row;
  Index a_row, a_col;  // one of them is 1
  Index b_row, b_col;  // one of them is 1
  T scale = T(1);
  bool accumulate = false;
  T* row_sum_m = nullptr;  // as another column of `out`, with a column of ones in `b`; only where a_row is 1
};

template <class Device, class T>
void reference_gemm(Device& device, const Gemm<T>& g) {
  parallel_rows(device, g.M, 16, [&](Index m) {
    for (Index n = 0; n < g.N; ++n) {
      T sum = T(0);
      for (Index k = 0; k < g.K; ++k) sum += g.a_mk[m * g.a_row + k * g.a_col] * g.b_kn[k * g.b_row + n * g.b_col];
      if (g.bias_n) sum += g.bias_n[n];
      T& out = g.out_mn[m * g.out_row + n];
      out = g.accumulate ? out + g.scale * sum : g.scale * sum;
    }
    if (g.row_sum_m) {
      T sum = T(0);
      for (Index k = 0; k < g.K; ++k) sum += g.a_mk[m * g.a_row + k * g.a_col];
      g.row_sum_m[m] = g.accumulate ? g.row_sum_m[m] + g.scale * sum : g.scale * sum;
    }
  });
}

#if ABH_LANE_BYTES > 4

inline constexpr int lanes = lane_width<float>;

// A tile fills the registers: 24 sums of 32 registers with 16 lanes, 12 sums of 16 registers with fewer.
inline constexpr int tile_rows = lanes == 16 ? 12 : 6;
inline constexpr int tile_vectors = 2;
inline constexpr int tile_columns = tile_vectors * lanes;

// Columns of `b` that are worked on together: with a block of K of them they stay in the second-level cache.
inline constexpr Index block_columns = lanes == 16 ? 256 : 128;

// Numbers of a row of `a` that a tile by columns reads.
inline constexpr int a_reads = (tile_rows + lanes - 1) / lanes * lanes;

using Quad = LanesOf<float, 4>::type;
inline Quad load_quad(const float* from) {
  Quad quad;
  std::memcpy(&quad, from, sizeof(Quad));
  return quad;
}

// Where a tile goes. `rows` x `columns` of it are real, the rest is padding.
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

// Finishes a tile with padding, sum_rn (rows, vectors * lanes): the same operations on padded copies.
inline __attribute__((noinline)) void finish_edge(const TileTarget& target, const float* sum_rn, Index row_floats) {
  using L = Wide<float>;
  for (Index r = 0; r < target.rows; ++r) {
    for (Index n = 0; n < target.columns; n += lanes) {
      float* out = target.out_mn + r * target.out_row + n;
      const std::size_t bytes = static_cast<std::size_t>(lesser(lanes, target.columns - n)) * sizeof(float);
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

// The operands of a tile: element (r, k) of `a` stands at a[r * a_stride + k] (Order::rows) or at a[r + k * a_stride]
// (Order::columns), element (k, n) of `b` at b[k * b_row + n].
enum class Order { rows, columns };
struct TileOperands {
  const float* a;
  Index a_stride;
  const float* b;
  Index b_row;
  Index K;
  const float* ahead = nullptr;  // Order::rows: fetched in passing, K numbers that a tile to come will read
  // Where a tile of tile_columns leaves its operands packed for the tiles to come, (K, tile_rows) and (K,
  // tile_columns); that of `a` with Order::columns only.
  float* a_panel = nullptr;
  float* b_panel = nullptr;
};

// The product of `rows` rows of `a` with `vectors` lane vectors of `b`.
template <int rows, int vectors, Order order, bool sums, bool keep_a, bool keep_b>
inline void tile_product(const TileTarget& target, const TileOperands& operands) {
  using L = Wide<float>;
  L sum[rows][vectors];
  unrolled<rows>([&](auto r) __attribute__((always_inline)) {
    unrolled<vectors>([&](auto v) __attribute__((always_inline)) { sum[r][v] = L{}; });
  });
  // Every third row has a pointer of its own: with multiples of the stride, 0 to 2, an instruction reaches all rows.
  const Index a_stride = operands.a_stride, b_row = operands.b_row;
  const float* a[order == Order::rows ? (rows + 2) / 3 : 1];
  unrolled<sizeof(a) / sizeof(a[0])>([&](auto i)
                                         __attribute__((always_inline)) { a[i] = operands.a + 3 * i * a_stride; });
  // Where the sums go may be far away: it comes nearer while they are computed.
  for (Index r = 0; r < target.rows; ++r) {
    for (int n = 0; n < vectors * lanes; n += 16) __builtin_prefetch(target.out_mn + r * target.out_row + n, 1, 3);
  }
  const float* b = operands.b;
  constexpr int sum_vectors = sums ? (rows + lanes - 1) / lanes : 0;
  L row_sum[sum_vectors + 1];
  unrolled<sum_vectors>([&](auto v) __attribute__((always_inline)) { row_sum[v] = L{}; });
  const float* ahead = operands.ahead;
  float* a_panel = operands.a_panel;
  float* b_panel = operands.b_panel;
  // Fewer turns: in a short loop it costs 5 % that the machine does not foresee the last one.
#pragma GCC unroll 4
  for (Index k = 0; k < operands.K; ++k) {
    if constexpr (order == Order::rows) __builtin_prefetch(ahead++, 0, 3);
    // Rows far apart, which the machine does not see coming. Else tiles of narrower lanes read packed operands, or rows
    // near each other, but for an `out` of few tiles.
    constexpr Index far = 24;
    if constexpr (keep_a || (order == Order::columns && lanes == 16)) __builtin_prefetch(a[0] + far * a_stride, 0, 3);
    if constexpr (keep_b || (order == Order::columns && lanes == 16)) {
      for (int n = 0; n < vectors * lanes; n += 16) __builtin_prefetch(b + far * b_row + n, 0, 3);
    }
    unrolled<sum_vectors>([&](auto v) __attribute__((always_inline)) { row_sum[v] += load<L>(a[0] + v * lanes); });
    L b_k[vectors];
    unrolled<vectors>([&](auto v) __attribute__((always_inline)) { b_k[v] = load<L>(b + v * lanes); });
    if constexpr (keep_a) {
      // Through integer registers, as the sums need all others.
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
      const float a_rk = order == Order::rows ? a[r / 3][r % 3 * a_stride] : a[0][r];
      unrolled<vectors>([&](auto v) __attribute__((always_inline)) { sum[r][v] += a_rk * b_k[v]; });
    });
    unrolled<sizeof(a) / sizeof(a[0])>([&](auto i) __attribute__((always_inline)) {
      a[i] += order == Order::rows ? 1 : a_stride;
    });
    b += b_row;
  }

  if constexpr (sums) {
    float sum_r[sum_vectors * lanes];
    unrolled<sum_vectors>([&](auto v) __attribute__((always_inline)) { store<L>(sum_r + v * lanes, row_sum[v]); });
    for (Index r = 0; r < target.rows; ++r) {
      float& out = target.row_sum_m[r];
      out = target.accumulate ? out + target.scale * sum_r[r] : target.scale * sum_r[r];
    }
  }
  if (target.rows == rows && target.columns == vectors * lanes) {
    // Branches around all sums, on copies of what they need: a store could change `target` for all a compiler knows.
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
    // Through memory: sums that live across a function call would be kept out of registers in the loop as well.
    alignas(64) float sum_rn[rows * vectors * lanes];
    unrolled<rows>([&](auto r) __attribute__((always_inline)) {
      unrolled<vectors>([&](auto v) __attribute__((always_inline)) {
        store<L>(sum_rn + (r * vectors + v) * lanes, sum[r][v]);
      });
    });
    finish_edge(target, sum_rn, vectors * lanes);
  }
}

// The same for the columns that `target` has, leaving packed what `operands` asks for.
template <int rows, Order order, bool sums>
inline void tile_of_rows(const TileTarget& target, const TileOperands& operands) {
  const auto product = [&]<int vectors, bool keep_a, bool keep_b>() {
    tile_product<rows, vectors, order, sums, keep_a, keep_b>(target, operands);
  };
  if (target.columns <= lanes) return product.template operator()<1, false, false>();
  if constexpr (order == Order::rows) {
    if (operands.b_panel) return product.template operator()<tile_vectors, false, true>();
  } else {
    if (operands.a_panel && operands.b_panel) return product.template operator()<tile_vectors, true, true>();
    if (operands.a_panel) return product.template operator()<tile_vectors, true, false>();
    if (operands.b_panel) return product.template operator()<tile_vectors, false, true>();
  }
  product.template operator()<tile_vectors, false, false>();
}

// The smallest product that covers the real part of the tile: an even number of rows, half or all of the columns. It
// reads as much of the operands: where the real part is smaller, they must be padded.
template <Order order>
inline void tile(const TileTarget& target, const TileOperands& operands) {
  unrolled<tile_rows / 2>([&](auto i) __attribute__((always_inline)) {
    constexpr int rows = 2 * (i + 1);
    if (target.rows != rows && target.rows != rows - 1) return;
    if constexpr (order == Order::columns) {
      if (target.row_sum_m) return tile_of_rows<rows, order, true>(target, operands);
    }
    tile_of_rows<rows, order, false>(target, operands);
  });
}

inline void copy_few(float* to, const float* from, Index count) {
  for (Index i = 0; i < count; ++i) to[i] = from[i];
}

// Rows of `from` (K, columns), row stride `stride`, into panels of `width` columns, each (K, width) and `panel` numbers
// from the next, the last one filled up with zeros. Inlined it would cost the loops around it registers.
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

// The same for one panel of a transposed `from`: element (k, n) at from[n * stride + k]. Four by four in registers,
// along a cache line of every column at a time, fetched two lines ahead.
inline void pack_transposed(float* panel, const float* from, Index stride, Index columns, Index K) {
  constexpr Index line = 16;
  for (Index begin = 0; begin < K; begin += line) {
    const Index end = lesser(K, begin + line);
    for (Index n = 0; n < columns; ++n) __builtin_prefetch(from + n * stride + begin + 2 * line, 0, 3);
    for (Index n = 0; n < tile_columns; n += 4) {
      Index k = begin;
      for (; n + 4 <= columns && k + 4 <= end; k += 4) {
        const float* corner = from + n * stride + k;
        const Quad r0 = load_quad(corner), r1 = load_quad(corner + stride);
        const Quad r2 = load_quad(corner + 2 * stride), r3 = load_quad(corner + 3 * stride);
        const Quad low01 = __builtin_shufflevector(r0, r1, 0, 4, 1, 5);
        const Quad low23 = __builtin_shufflevector(r2, r3, 0, 4, 1, 5);
        const Quad high01 = __builtin_shufflevector(r0, r1, 2, 6, 3, 7);
        const Quad high23 = __builtin_shufflevector(r2, r3, 2, 6, 3, 7);
        const Quad columns_of[4] = {
            __builtin_shufflevector(low01, low23, 0, 1, 4, 5), __builtin_shufflevector(low01, low23, 2, 3, 6, 7),
            __builtin_shufflevector(high01, high23, 0, 1, 4, 5), __builtin_shufflevector(high01, high23, 2, 3, 6, 7)};
        for (int i = 0; i < 4; ++i) std::memcpy(panel + (k + i) * tile_columns + n, &columns_of[i], sizeof(Quad));
      }
      for (; k < end; ++k) {
        for (Index i = n; i < n + 4; ++i) panel[k * tile_columns + i] = i < columns ? from[i * stride + k] : 0.0f;
      }
    }
  }
}

// For the first tile that reads a panel of `b`: `columns` of it are left at b_kn, and rows of `b` lie b_row apart. The
// tile reads whole panels where they stand and leaves a copy at `panel`; a narrower one is packed now.
inline void pack_in_passing(TileOperands& operands, float* panel, const float* b_kn, Index b_row, Index columns) {
  const bool whole = columns >= tile_columns;
  if (!whole) pack_rows<tile_columns>(panel, 0, b_kn, b_row, columns, operands.K);
  operands.b = whole ? b_kn : panel;
  operands.b_row = whole ? b_row : Index{tile_columns};
  operands.b_panel = whole ? panel : nullptr;
}

// b_row = 1: each column of `b` is contiguous. It is multiplied with one row of `a` after the other, four lane vectors
// at a time: read as it lies in memory, without a pause, a large `b` comes as fast as memory delivers.
inline void dot_column(const Gemm<float>& g, Index m_begin, Index m_end, Index n) {
  using L = Wide<float>;
  constexpr int sums = 4;
  const float* b_k = g.b_kn + n * g.b_col;
  for (Index m = m_begin; m < m_end; ++m) {
    const float* a_k = g.a_mk + m * g.a_row;
    L wide[sums];
    unrolled<sums>([&](auto i) __attribute__((always_inline)) { wide[i] = L{}; });
    Index k = 0;
    for (; k + sums * lanes <= g.K; k += sums * lanes) {
      unrolled<sums>([&](auto i) __attribute__((always_inline)) {
        wide[i] += load<L>(a_k + k + i * lanes) * load<L>(b_k + k + i * lanes);
      });
    }
    for (; k + lanes <= g.K; k += lanes) wide[0] += load<L>(a_k + k) * load<L>(b_k + k);
    float sum = sum_lanes<L>((wide[0] + wide[1]) + (wide[2] + wide[3]));
    for (; k < g.K; ++k) sum += a_k[k] * b_k[k];
    if (g.bias_n) sum += g.bias_n[n];
    float& out = g.out_mn[m * g.out_row + n];
    out = g.accumulate ? out + g.scale * sum : g.scale * sum;
  }
}

template <class Device>
void row_gemm(Device& device, const Gemm<float>& g) {
  constexpr Index max_k = 512, block_k = 384;
  constexpr Index a_copy_stride = max_k + 16;
  constexpr Index level1_way = 4096 / sizeof(float);
  constexpr Index small = lanes == 16 ? 1 << 16 : 0;
  const Index M = g.M, K = g.K;
  const Index few_columns = g.b_row == 1 && g.N > lanes && g.N % lanes <= lanes / 4 ? g.N % lanes : 0;
  const Index N = g.N - few_columns;
  const Index k_blocks = K <= max_k ? 1 : blocks_of(K, block_k);
  const bool pack = g.b_col != 1 || N % lanes != 0 || K * N > small;

  // A worker has consecutive tasks, which walk down the rows of a block of columns, and packs the block when it comes
  // to it: what another core has just written would come slower. Two workers may meet in a block and both pack it, so
  // that blocks are the narrower, the fewer rows there are for a worker.
  constexpr Index enough_rows = 192;
  const Index workers = device.threads.count();
  Index n_block = block_columns;
  while (n_block > tile_columns && M * blocks_of(N, n_block) < enough_rows * workers) n_block /= 2;
  const Index n_blocks = blocks_of(N, n_block), n_tiles = blocks_of(N, tile_columns);
  // Of about the same width, as every worker gets as many tasks: 384 columns are twice 192, not 256 and 128.
  const auto block_begin = [&](Index block) { return lesser(N, block * n_tiles / n_blocks * tile_columns); };
  const Index packed_columns = pack ? blocks_of(n_tiles, n_blocks) * tile_columns : 0;
  typename Device::Scope scratch(device.workspace);
  float* all_packed = scratch.template take<float>(workers * K * packed_columns);

  // A task walks through blocks of K by itself, with some rows for as long as a block of `b` is near.
  constexpr Index most_tiles = 8, enough_tasks = 32;
  const Index tiles_each = blocks_of(M, tile_rows) * n_blocks / enough_tasks;
  const Index task_rows = lesser(greater(tiles_each, 1), most_tiles) * tile_rows;
  const Index m_tasks = blocks_of(M, task_rows), tasks = m_tasks * n_blocks;
  parallel_for(device, tasks, [&](Index task, Index worker) {
    alignas(64) float a_copy[tile_rows * a_copy_stride];
    const Index m_begin = task % m_tasks * task_rows, m_end = lesser(M, m_begin + task_rows);
    const Index n_begin = block_begin(task / m_tasks), n_end = block_begin(task / m_tasks + 1);
    const bool first_of_block = pack && (m_begin == 0 || task == worker * tasks / workers);
    float* packed = all_packed + worker * K * packed_columns;
    for (Index k = 0, k_end, block = 1; k < K; k = k_end, ++block) {
      // To begin at an odd step is one to two per cent faster for K of 768 to 1,536 on Zen 3.
      k_end = lesser(K, (block * K / k_blocks) | 1);
      const Index count = k_end - k;
      float* panels = packed + k * packed_columns;
      if (first_of_block && g.b_col != 1) {
        for (Index n = n_begin; n < n_end; n += tile_columns) {
          pack_transposed(panels + (n - n_begin) * count, g.b_kn + k + n * g.b_col, g.b_col,
                          lesser(tile_columns, N - n), count);
        }
      }
      for (Index m = m_begin; m < m_end; m += tile_rows) {
        const bool packs_rows = m == m_begin && first_of_block && g.b_col == 1;
        const Index rows = lesser(tile_rows, m_end - m);
        TileOperands operands{.a = g.a_mk + m * g.a_row + k, .a_stride = g.a_row, .b = nullptr, .b_row = 0, .K = count};
        if (rows % 2 != 0 || g.a_row % level1_way == 0) {
          for (Index r = 0; r < rows; ++r) {
            std::memcpy(a_copy + r * a_copy_stride, operands.a + r * g.a_row,
                        static_cast<std::size_t>(count) * sizeof(float));
          }
          if (rows % 2 != 0) {
            std::memset(a_copy + rows * a_copy_stride, 0, static_cast<std::size_t>(count) * sizeof(float));
          }
          operands.a = a_copy;
          operands.a_stride = a_copy_stride;
        }
        for (Index n = n_begin; n < n_end; n += tile_columns) {
          // A row of `a` is fetched by every tile before the tiles that read it: the machine sees six streams that
          // begin at once too late.
          const Index next = m + tile_rows + (n - n_begin) / tile_columns;
          operands.ahead = next < lesser(m + 2 * tile_rows, m_end) ? g.a_mk + next * g.a_row + k : operands.a;
          operands.b = pack ? panels + (n - n_begin) * count : g.b_kn + k * g.b_row + n;
          operands.b_row = pack ? Index{tile_columns} : g.b_row;
          if (packs_rows) {
            pack_in_passing(operands, panels + (n - n_begin) * count, g.b_kn + k * g.b_row + n, g.b_row, N - n);
          }
          tile<Order::rows>({.out_mn = g.out_mn + m * g.out_row + n,
                             .out_row = g.out_row,
                             .bias_n = g.bias_n && k == 0 ? g.bias_n + n : nullptr,
                             .rows = rows,
                             .columns = lesser(tile_columns, N - n),
                             .scale = g.scale,
                             .accumulate = g.accumulate || k > 0},
                            operands);
        }
      }
    }
    if (n_end == N) {
      for (Index n = N; n < g.N; ++n) dot_column(g, m_begin, m_end, n);
    }
  });
}

template <class Device>
void dot_gemm(Device& device, const Gemm<float>& g) {
  // Of `b`: some microseconds of reading, more than starting the threads takes.
  constexpr Index task_elements = 1 << 16;
  const Index task_columns = task_elements / greater(g.K, 1) + 1;
  parallel_for(device, blocks_of(g.N, task_columns), [&](Index task, Index) {
    const Index begin = task * task_columns;
    for (Index n = begin; n < lesser(g.N, begin + task_columns); ++n) dot_column(g, 0, g.M, n);
  });
}

// The work of one task: steps [k, k + count) of the sums in a block of `out`.
struct ColumnBlock {
  Index m_begin, m_end, n_begin, n_end, k, count;
};

// The tiles of a block, from operands read where they stand. At an edge a tile reads on into the next row, and what
// that gives is dropped; the last rows, from where it would read beyond the matrix, are copied.
template <class Target>
inline void column_tiles(const Gemm<float>& g, const ColumnBlock& block, const Target& target_of) {
  // The most last rows that cannot be read: with rows of one number, all but the first number are beyond the row.
  constexpr int most_copied = a_reads > lanes ? a_reads : lanes;
  for (Index n = block.n_begin; n < block.n_end; n += tile_columns) {
    for (Index m = block.m_begin; m < block.m_end; m += tile_rows) {
      TileTarget target = target_of(m, n);
      TileOperands operands{.a = g.a_mk + m + block.k * g.a_col,
                            .a_stride = g.a_col,
                            .b = g.b_kn + n + block.k * g.b_row,
                            .b_row = g.b_row,
                            .K = block.count};
      const Index b_reads = target.columns <= lanes ? lanes : tile_columns;
      const Index last_whole =
          g.K - greater(blocks_of(m + a_reads - g.M, g.a_col), blocks_of(n + b_reads - g.N, g.b_row));
      if (last_whole >= block.k + block.count) {
        tile<Order::columns>(target, operands);
        continue;
      }
      operands.K = greater(last_whole - block.k, 0);
      tile<Order::columns>(target, operands);
      float a_copy[most_copied * a_reads], b_copy[most_copied * tile_columns];
      std::memset(a_copy, 0, sizeof(a_copy));
      std::memset(b_copy, 0, sizeof(b_copy));
      for (Index row = block.k + operands.K; row < block.k + block.count; ++row) {
        const Index copied = row - block.k - operands.K;
        copy_few(a_copy + copied * a_reads, g.a_mk + m + row * g.a_col, target.rows);
        copy_few(b_copy + copied * tile_columns, g.b_kn + n + row * g.b_row, target.columns);
      }
      target.accumulate = true;
      tile<Order::columns>(
          target,
          {.a = a_copy, .a_stride = a_reads, .b = b_copy, .b_row = tile_columns, .K = block.count - operands.K});
    }
  }
}

// a_row = 1, b_col = 1, no bias. `out` is cut into blocks, and K, where it is long and blocks are few, into parts, each
// with an output of its own; the parts are added up in order.
template <class Device>
void column_gemm(Device& device, const Gemm<float>& g) {
  constexpr Index max_rows = 11 * 12, max_columns = 256, max_k = 256;
  constexpr Index enough_tasks = 24, long_part = 1024, least_part = 128;
  const Index M = g.M, N = g.N, K = g.K;
  const Index m_tiles = blocks_of(M, tile_rows), n_tiles = blocks_of(N, tile_columns);
  Index m_blocks = blocks_of(M, max_rows), n_blocks = blocks_of(N, max_columns);
  const auto cut_k = [&](Index least) {
    const Index most = K / least > 0 ? K / least : 1;
    return lesser(blocks_of(enough_tasks, m_blocks * n_blocks), most);
  };
  Index parts = cut_k(long_part);
  while (parts * m_blocks * n_blocks < enough_tasks && m_blocks * n_blocks < m_tiles * n_tiles) {
    if (m_tiles * n_blocks > n_tiles * m_blocks) {
      m_blocks = lesser(2 * m_blocks, m_tiles);
    } else {
      n_blocks = lesser(2 * n_blocks, n_tiles);
    }
  }
  if (parts * m_blocks * n_blocks < enough_tasks) parts = cut_k(least_part);
  const Index block_m = blocks_of(m_tiles, m_blocks) * tile_rows, block_n = blocks_of(n_tiles, n_blocks) * tile_columns;
  m_blocks = blocks_of(M, block_m), n_blocks = blocks_of(N, block_n);
  const Index tasks = parts * m_blocks * n_blocks;

  typename Device::Scope scratch(device.workspace);
  float* part_pmn = parts > 1 ? scratch.template take<float>(parts * M * N) : nullptr;
  float* part_sum_pm = parts > 1 && g.row_sum_m ? scratch.template take<float>(parts * M) : nullptr;

  parallel_for(device, tasks, [&](Index task, Index) {
    const Index part = task / (m_blocks * n_blocks);
    const Index m_begin = task % m_blocks * block_m, m_end = lesser(M, m_begin + block_m);
    const Index n_begin = task / m_blocks % n_blocks * block_n, n_end = lesser(N, n_begin + block_n);
    const Index k_begin = part * K / parts, k_end = (part + 1) * K / parts;
    for (Index k = k_begin; k < k_end; k += max_k) {
      column_tiles(g, {m_begin, m_end, n_begin, n_end, k, lesser(max_k, k_end - k)}, [&](Index m, Index n) {
        TileTarget target{.out_mn = g.out_mn + m * g.out_row + n,
                          .out_row = g.out_row,
                          .bias_n = nullptr,
                          .rows = lesser(tile_rows, m_end - m),
                          .columns = lesser(tile_columns, n_end - n),
                          .scale = g.scale,
                          .accumulate = g.accumulate || k > k_begin};
        if (parts > 1) {
          target.out_mn = part_pmn + (part * M + m) * N + n;
          target.out_row = N;
          target.scale = 1;
          target.accumulate = k > k_begin;
        }
        if (g.row_sum_m && n == 0) target.row_sum_m = parts > 1 ? part_sum_pm + part * M + m : g.row_sum_m + m;
        return target;
      });
    }
  });

  if (parts == 1) return;
  const auto add_parts = [&]<class L>(float* out, const float* part, Index part_size) {
    L sum = load<L>(part);
    for (Index p = 1; p < parts; ++p) sum += load<L>(part + p * part_size);
    store<L>(out, g.accumulate ? load<L>(out) + g.scale * sum : g.scale * sum);
  };
  parallel_rows(device, M, 16, [&](Index m) {
    for_lanes<float>(N, [&]<class L>(Index n) {
      add_parts.template operator()<L>(g.out_mn + m * g.out_row + n, part_pmn + m * N + n, M * N);
    });
    if (g.row_sum_m) add_parts.template operator()<float>(g.row_sum_m + m, part_sum_pm + m, M);
  });
}

// The tile of a block at (m, n), m_end and n_end where its rows and columns end.
inline TileTarget column_target(const Gemm<float>& g, Index m, Index m_end, Index n, Index n_end, bool first_steps) {
  return {.out_mn = g.out_mn + m * g.out_row + n,
          .out_row = g.out_row,
          .bias_n = nullptr,
          .rows = lesser(tile_rows, m_end - m),
          .columns = lesser(tile_columns, n_end - n),
          .scale = g.scale,
          .accumulate = g.accumulate || !first_steps,
          .row_sum_m = g.row_sum_m && n == 0 ? g.row_sum_m + m : nullptr};
}

// packed_column_gemm reads `a` where it stands if `out` has at most so many rows, as rows of `a` are short and near
// each other then, or fewer columns than these, which read it seldom.
inline constexpr Index narrow_rows = lanes == 16 ? 768 : 128;
inline constexpr Index narrow_columns = lanes == 16 ? 256 : 0;

// What is worked on together then: this much of `a` stays in the second-level cache, a panel of `b` in the first.
inline constexpr Index narrow_part_rows = lanes == 16 ? 384 : narrow_rows, narrow_part_steps = 256;

// The tiles of such a part. The first tile of a column leaves its panel of `b` packed for the others. Narrow lanes pack
// `a` on the way as well where it meets many columns; the last tiles, which would read beyond the matrix, have a copy
// of it.
inline void narrow_part_tiles(const Gemm<float>& g, const ColumnBlock& part) {
  constexpr Index many_columns = 256, last_tiles = 2;
  constexpr Index panel_size = narrow_part_steps * tile_rows + a_reads;
  constexpr Index panels = lanes == 16 ? last_tiles : blocks_of(narrow_part_rows, tile_rows);
  alignas(64) float a_panels[panels * panel_size];
  alignas(64) float b_panel[narrow_part_steps * tile_columns];
  const bool packs_a = lanes < 16 && g.N > many_columns;
  const float* a_mk = g.a_mk + part.k * g.a_col;
  const float* b_kn = g.b_kn + part.k * g.b_row;
  for (Index n = part.n_begin; n < part.n_end; n += tile_columns) {
    float* a_panel = a_panels;
    for (Index m = part.m_begin, rows; m < part.m_end; m += rows) {
      // Four rows twice cost less than six and two, whose few sums wait for each other.
      const Index left = part.m_end - m;
      rows = left == tile_rows + 1 || left == tile_rows + 2 ? tile_rows - 2 : lesser(tile_rows, left);
      const bool first = n == part.n_begin, a_ends = m + a_reads > g.M;
      if (first && a_ends) pack_rows<tile_rows>(a_panel, 0, a_mk + m, g.a_col, rows, part.count);
      TileOperands operands{.a = a_panel, .a_stride = tile_rows, .b = b_panel, .b_row = tile_columns, .K = part.count};
      if (!a_ends && (first || !packs_a)) {
        operands.a = a_mk + m;
        operands.a_stride = g.a_col;
        if (packs_a) operands.a_panel = a_panel;
      }
      if (m == part.m_begin) pack_in_passing(operands, b_panel, b_kn + n, g.b_row, g.N - n);
      tile<Order::columns>(column_target(g, m, m + rows, n, part.n_end, part.k == 0), operands);
      if (packs_a || a_ends) a_panel += panel_size;
    }
  }
}

// The tiles of a block, part by part.
inline void narrow_column_tiles(const Gemm<float>& g, const ColumnBlock& block) {
  const Index k_parts = blocks_of(block.count, narrow_part_steps);
  const Index m_tiles = blocks_of(block.m_end - block.m_begin, tile_rows);
  const Index m_parts = blocks_of(block.m_end - block.m_begin, narrow_part_rows);
  for (Index k_part = 0; k_part < k_parts; ++k_part) {
    for (Index m_part = 0; m_part < m_parts; ++m_part) {
      ColumnBlock part = block;
      part.m_begin = block.m_begin + m_part * m_tiles / m_parts * tile_rows;
      part.m_end = lesser(block.m_end, block.m_begin + (m_part + 1) * m_tiles / m_parts * tile_rows);
      part.k = block.k + k_part * block.count / k_parts;
      part.count = block.k + (k_part + 1) * block.count / k_parts - part.k;
      narrow_part_tiles(g, part);
    }
  }
}

// Steps that tiles of packed operands take together: a panel of `b` stays in the first-level cache for them.
inline constexpr Index packed_steps = lanes == 16 ? 128 : 256;
inline constexpr Index packed_a_panel = packed_steps * tile_rows + a_reads;

// Some steps in some rows of a block; of these steps, `packed` are in the panels at `a`.
struct ColumnGroup {
  Index k, count, m, m_end;
  float* a;
  Index packed = 0;
};

// The same for more rows, with room for the block's columns of `b` in b_panels. Rows of `a` stand in a page each: they
// are packed a group of tiles ahead, a few of them between two tiles, with all columns of the group. A tile reads a
// panel of `b` from the first-level cache, where it stays for the tiles of a group, and a panel of `a` from the second.
inline void packed_column_tiles(const Gemm<float>& g, const ColumnBlock& block, float* b_panels) {
  constexpr Index group_tiles = lanes == 16 ? 8 : 11, a_group = group_tiles * packed_a_panel;
  alignas(64) float a_panels[2 * a_group];
  const Index m_tiles = blocks_of(block.m_end - block.m_begin, tile_rows);
  const Index n_tiles = blocks_of(block.n_end - block.n_begin, tile_columns);
  const Index groups = blocks_of(m_tiles, group_tiles), k_parts = blocks_of(block.count, packed_steps);
  const auto group_at = [&](Index i) {
    const auto k_of = [&](Index k_part) { return block.k + k_part * block.count / k_parts; };
    const auto m_of = [&](Index group) { return block.m_begin + group * m_tiles / groups * tile_rows; };
    const Index k = k_of(i / groups);
    return ColumnGroup{.k = k,
                       .count = k_of(i / groups + 1) - k,
                       .m = m_of(i % groups),
                       .m_end = lesser(block.m_end, m_of(i % groups + 1)),
                       .a = a_panels + i % 2 * a_group};
  };
  const auto pack = [&](ColumnGroup& group, Index rows) {
    pack_rows<tile_rows>(group.a + group.packed * tile_rows, packed_a_panel,
                         g.a_mk + group.m + (group.k + group.packed) * g.a_col, g.a_col, group.m_end - group.m, rows);
    group.packed += rows;
  };

  ColumnGroup group = group_at(0);
  pack(group, group.count);
  for (Index i = 0; i < groups * k_parts; ++i) {
    ColumnGroup next = i + 1 < groups * k_parts ? group_at(i + 1) : ColumnGroup{};
    const Index rows_each = blocks_of(next.count, blocks_of(group.m_end - group.m, tile_rows) * n_tiles);
    for (Index n = block.n_begin; n < block.n_end; n += tile_columns) {
      float* b_panel = b_panels + (n - block.n_begin) * group.count;
      const float* b_kn = g.b_kn + n + group.k * g.b_row;
      const float* a = group.a;
      for (Index m = group.m; m < group.m_end; m += tile_rows, a += packed_a_panel) {
        if (next.packed < next.count) pack(next, lesser(rows_each, next.count - next.packed));
        TileOperands operands{.a = a, .a_stride = tile_rows, .b = b_panel, .b_row = tile_columns, .K = group.count};
        if (m == block.m_begin) pack_in_passing(operands, b_panel, b_kn, g.b_row, g.N - n);
        tile<Order::columns>(column_target(g, m, group.m_end, n, block.n_end, group.k == 0), operands);
      }
    }
    group = next;
  }
}

// column_gemm where a tile reads often and rows are long: those of a matrix with a power of two of columns all fall
// into the same few places of the first-level cache. Every task packs for itself what it needs, on the way: what
// another core has just written would come slower than it is packed again.
template <class Device>
void packed_column_gemm(Device& device, const Gemm<float>& g) {
  const Index M = g.M, N = g.N, K = g.K;
  const Index m_tiles = blocks_of(M, tile_rows), n_tiles = blocks_of(N, tile_columns);
  const bool narrow = M <= narrow_rows || N < narrow_columns;

  // A task for every worker, as a rule: the fewer there are, the less is packed. The one with most tiles decides; to
  // pack a row or a column of tiles counts as another tile. Wide lanes need more of `b` in the same time: what a task
  // has of it stays in the second-level cache.
  constexpr Index most_n_tiles = 24;
  const Index workers = device.threads.count();
  const auto most_tiles = [&](Index m_tasks) {
    return (blocks_of(m_tiles, m_tasks) + 1) * (blocks_of(n_tiles, workers / m_tasks) + 1);
  };
  Index m_tasks = 1;
  for (Index rows = 2; rows <= workers; ++rows) {
    if (workers % rows == 0 && most_tiles(rows) <= most_tiles(m_tasks)) m_tasks = rows;
  }
  Index n_tasks = workers / m_tasks;
  if (lanes == 16) n_tasks *= blocks_of(blocks_of(n_tiles, n_tasks), most_n_tiles);
  const auto row_of = [&](Index m_task) { return m_task == m_tasks ? M : m_task * M / m_tasks / 2 * 2; };

  typename Device::Scope scratch(device.workspace);
  const Index task_elements = narrow ? 0 : lesser(K, packed_steps) * blocks_of(n_tiles, n_tasks) * tile_columns;
  float* b_panels = scratch.template take<float>(workers * task_elements);
  parallel_for(device, m_tasks * n_tasks, [&](Index task, Index worker) {
    const Index m_task = task % m_tasks, n_task = task / m_tasks;
    const ColumnBlock block{.m_begin = row_of(m_task),
                            .m_end = row_of(m_task + 1),
                            .n_begin = n_task * n_tiles / n_tasks * tile_columns,
                            .n_end = lesser(N, (n_task + 1) * n_tiles / n_tasks * tile_columns),
                            .k = 0,
                            .count = K};
    if (block.m_begin >= block.m_end || block.n_begin >= block.n_end) return;
    if (narrow) {
      narrow_column_tiles(g, block);
    } else {
      packed_column_tiles(g, block, b_panels + worker * task_elements);
    }
  });
}

#endif

// M, N, K >= 0, no element of `out` written where M or N is 0.
template <class Device, class T>
void gemm(Device& device, const Gemm<T>& g) {
#if ABH_LANE_BYTES > 4
  if constexpr (is_float<T>) {
    if (g.M == 0 || g.N == 0) return;
    if (g.K == 0) return reference_gemm(device, g);
    if (g.a_col != 1 || g.row_sum_m) {
      constexpr Index few_tiles = lanes == 16 ? 80 : 16;
      if (blocks_of(g.M, tile_rows) * blocks_of(g.N, tile_columns) < few_tiles) {
        column_gemm(device, g);
      } else {
        packed_column_gemm(device, g);
      }
    } else if (g.M < tile_rows && g.b_row == 1) {
      dot_gemm(device, g);
    } else {
      row_gemm(device, g);
    }
    return;
  }
#endif
  reference_gemm(device, g);
}

}  // namespace ABH_ISA
}  // namespace abh
