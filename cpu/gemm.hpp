#pragma once

// out_mn = scale (a_mk b_kn + bias_n), or the same added to out_mn: the matrix product behind `linear`. Element (m, k)
// of `a` stands at a_mk[m * a_row + k * a_col], so that a transposed matrix is one with its strides exchanged.
//
// gemm() picks a version of the product:
//   reference_gemm  the readable one, for any scalar and any strides; what the others are tested against
//   row_gemm        floats, rows of `a` contiguous (forward, gradient of the input): `b` is packed once a call
//   dot_gemm        the same with few rows (inference): `b` is read once, where it stands
//   column_gemm     floats, columns of `a` contiguous (gradient of the weight): short, wide, and long in K
//
// row_gemm and column_gemm hold a tile of `out` in registers and walk along k: a step loads a row of `b` in a few lane
// vectors and multiplies it by a column of `a`, element by element. `a` and `b` are copied first, a block at a time, to
// where the tile reads them in order and from a near cache. Every element is summed in the order of k within a block of
// K and over the blocks in order, wherever it stands in a tile and whichever thread computes it.

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
};

inline Index blocks_of(Index count, Index block) { return (count + block - 1) / block; }
inline Index lesser(Index a, Index b) { return a < b ? a : b; }

// Calls body(m) for the rows of [0, M), in parallel, some rows a task.
template <class Device, class Body>
void parallel_rows(Device& device, Index M, Index rows_per_task, const Body& body) {
  parallel_for(device, blocks_of(M, rows_per_task), [&](Index task, Index) {
    const Index end = lesser(M, (task + 1) * rows_per_task);
    for (Index m = task * rows_per_task; m < end; ++m) body(m);
  });
}

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
  });
}

#if ABH_LANE_BYTES > 4

inline constexpr int lanes = lane_width<float>;

// A tile fills the registers: 24 sums of 32 registers with 16 lanes, 12 sums of 16 registers with fewer.
inline constexpr int tile_rows = lanes == 16 ? 12 : 6;
inline constexpr int tile_vectors = 2;
inline constexpr int tile_columns = tile_vectors * lanes;

// Columns of `b` that are worked on together: with a block of K of them they stay in the second-level cache.
inline constexpr Index block_columns = 256;

template <int value>
struct Constant {
  constexpr operator int() const { return value; }
};

// body(0), ..., body(count - 1) with constant arguments: arrays indexed by them become registers.
template <int count, class Body>
inline __attribute__((always_inline)) void unrolled(const Body& body) {
  if constexpr (count > 0) {
    unrolled<count - 1>(body);
    body(Constant<count - 1>{});
  }
}

// Where a tile goes. `rows` x `columns` of it are real, the rest is padding.
struct TileTarget {
  float* out_mn;
  Index out_row;
  const float* bias_n;
  Index rows, columns;
  float scale;
  bool accumulate;
};

inline void finish_lanes(const TileTarget& target, const Wide<float>& sum, const float* bias, float* out) {
  const Wide<float> scaled = splat<Wide<float>>(target.scale) * (bias ? sum + load<Wide<float>>(bias) : sum);
  store<Wide<float>>(out, target.accumulate ? load<Wide<float>>(out) + scaled : scaled);
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
      finish_lanes(target, load<L>(sum_rn + r * row_floats + n), target.bias_n ? padded_bias : nullptr, padded_out);
      std::memcpy(out, padded_out, bytes);
    }
  }
}

// The product of `rows` rows of `a`, element (r, k) at a[r * a_row + k * a_col], with `vectors` lane vectors of a
// packed panel of `b`, (K, tile_columns).
template <int rows, int vectors, Index a_row, Index a_col>
inline void tile_product(const TileTarget& target, const float* a, const float* b_kn, Index K) {
  using L = Wide<float>;
  L sum[rows][vectors];
  unrolled<rows>([&](auto r) __attribute__((always_inline)) {
    unrolled<vectors>([&](auto v) __attribute__((always_inline)) { sum[r][v] = L{}; });
  });
  for (Index k = 0; k < K; ++k) {
    L b[vectors];
    unrolled<vectors>([&](auto v) __attribute__((always_inline)) { b[v] = load<L>(b_kn + v * lanes); });
    unrolled<rows>([&](auto r) __attribute__((always_inline)) {
      const float a_rk = a[r * a_row];
      unrolled<vectors>([&](auto v) __attribute__((always_inline)) { sum[r][v] += a_rk * b[v]; });
    });
    a += a_col;
    b_kn += tile_columns;
  }

  if (target.rows == rows && target.columns == vectors * lanes) {
    unrolled<rows>([&](auto r) __attribute__((always_inline)) {
      unrolled<vectors>([&](auto v) __attribute__((always_inline)) {
        const float* bias = target.bias_n ? target.bias_n + v * lanes : nullptr;
        finish_lanes(target, sum[r][v], bias, target.out_mn + r * target.out_row + v * lanes);
      });
    });
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

// The smallest product that covers the real part of the tile: a third, two thirds or all of the rows, half or all of
// the columns.
template <Index a_row, Index a_col>
inline void tile(const TileTarget& target, const float* a, const float* b_kn, Index K) {
  constexpr int third = tile_rows / 3;
  const auto with_rows = [&](auto rows) {
    if (target.columns <= lanes) {
      tile_product<rows, 1, a_row, a_col>(target, a, b_kn, K);
    } else {
      tile_product<rows, tile_vectors, a_row, a_col>(target, a, b_kn, K);
    }
  };
  if (target.rows <= third) {
    with_rows(Constant<third>{});
  } else if (target.rows <= 2 * third) {
    with_rows(Constant<2 * third>{});
  } else {
    with_rows(Constant<tile_rows>{});
  }
}

// Copies `count` <= width floats and fills up with zeros.
inline void copy_padded(float* to, const float* from, Index count, Index width) {
  Index i = 0;
  for (; i + 4 <= count; i += 4) std::memcpy(to + i, from + i, 4 * sizeof(float));
  for (; i < count; ++i) to[i] = from[i];
  for (; i < width; ++i) to[i] = 0;
}

// Rows of `from` (K, columns), row stride `stride`, into panels of `width` columns, each (K, width), the last one
// filled up with zeros.
template <int width>
inline void pack_rows(float* panels, const float* from, Index stride, Index columns, Index K) {
  for (Index k = 0; k < K; ++k) {
    const float* row = from + k * stride;
    Index n = 0;
    for (; n + width <= columns; n += width) std::memcpy(panels + n * K + k * width, row + n, width * sizeof(float));
    if (n < columns) copy_padded(panels + n * K + k * width, row + n, columns - n, width);
  }
}

// The same for one panel of a transposed `from`: element (k, n) at from[n * stride + k]. Four by four in registers.
inline void pack_transposed(float* panel, const float* from, Index stride, Index columns, Index K) {
  using Quad = LanesOf<float, 4>::type;
  const auto load_quad = [](const float* address) {
    Quad quad;
    std::memcpy(&quad, address, sizeof(Quad));
    return quad;
  };
  for (Index n = 0; n < tile_columns; n += 4) {
    Index k = 0;
    for (; n + 4 <= columns && k + 4 <= K; k += 4) {
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
    for (; k < K; ++k) {
      for (Index i = n; i < n + 4; ++i) panel[k * tile_columns + i] = i < columns ? from[i * stride + k] : 0.0f;
    }
  }
}

template <class Device>
void row_gemm(Device& device, const Gemm<float>& g) {
  // Twelve rows of `a` that are a power of two apart would share a few sets of the first-level cache: they are copied
  // to a distance that is an odd number of cache lines.
  constexpr Index max_k = 512;
  constexpr Index a_stride = max_k + 16;
  constexpr Index task_rows = 48;
  const Index M = g.M, N = g.N, K = g.K;
  const Index k_blocks = blocks_of(K, max_k);
  const Index panels = blocks_of(N, tile_columns);

  typename Device::Scope scratch(device.workspace);
  float* packed = scratch.template take<float>(K * panels * tile_columns);
  const auto k_of = [&](Index block) { return block * K / k_blocks; };
  const auto panel_of = [&](Index block, Index p) {
    return packed + (k_of(block) * panels + p * (k_of(block + 1) - k_of(block))) * tile_columns;
  };
  parallel_for(device, panels, [&](Index p, Index) {
    const Index n = p * tile_columns;
    const Index columns = lesser(tile_columns, N - n);
    for (Index block = 0; block < k_blocks; ++block) {
      const Index k = k_of(block), count = k_of(block + 1) - k;
      const float* from = g.b_kn + k * g.b_row + n * g.b_col;
      if (g.b_col == 1) {
        pack_rows<tile_columns>(panel_of(block, p), from, g.b_row, columns, count);
      } else {
        pack_transposed(panel_of(block, p), from, g.b_col, columns, count);
      }
    }
  });

  const Index n_blocks = blocks_of(N, block_columns);
  parallel_for(device, blocks_of(M, task_rows) * n_blocks, [&](Index task, Index) {
    alignas(64) float a_rows[tile_rows * a_stride];
    const Index m_begin = task / n_blocks * task_rows, m_end = lesser(M, m_begin + task_rows);
    const Index n_begin = task % n_blocks * block_columns, n_end = lesser(N, n_begin + block_columns);
    for (Index block = 0; block < k_blocks; ++block) {
      const Index k = k_of(block), count = k_of(block + 1) - k;
      for (Index m = m_begin; m < m_end; m += tile_rows) {
        const Index rows = lesser(tile_rows, m_end - m);
        for (Index r = 0; r < tile_rows; ++r) {
          const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(float);
          if (r < rows) {
            std::memcpy(a_rows + r * a_stride, g.a_mk + (m + r) * g.a_row + k, bytes);
          } else {
            std::memset(a_rows + r * a_stride, 0, bytes);
          }
        }
        for (Index n = n_begin; n < n_end; n += tile_columns) {
          tile<a_stride, 1>({.out_mn = g.out_mn + m * g.out_row + n,
                             .out_row = g.out_row,
                             .bias_n = g.bias_n && block == 0 ? g.bias_n + n : nullptr,
                             .rows = rows,
                             .columns = lesser(tile_columns, N - n),
                             .scale = g.scale,
                             .accumulate = g.accumulate || block > 0},
                            a_rows, panel_of(block, n / tile_columns), count);
        }
      }
    }
  });
}

// Few rows, b_row = 1: each column of `b` is contiguous; `count` of them at a time are multiplied with every row.
template <int count>
inline void dot_columns(const Gemm<float>& g, Index n) {
  using L = Wide<float>;
  for (Index m = 0; m < g.M; ++m) {
    const float* a_k = g.a_mk + m * g.a_row;
    L wide[count];
    float rest[count];
    unrolled<count>([&](auto j) __attribute__((always_inline)) { wide[j] = L{}, rest[j] = 0; });
    Index k = 0;
    for (; k + lanes <= g.K; k += lanes) {
      const L a = load<L>(a_k + k);
      unrolled<count>([&](auto j)
                          __attribute__((always_inline)) { wide[j] += a * load<L>(g.b_kn + (n + j) * g.b_col + k); });
    }
    for (; k < g.K; ++k) {
      unrolled<count>([&](auto j)
                          __attribute__((always_inline)) { rest[j] += a_k[k] * g.b_kn[(n + j) * g.b_col + k]; });
    }
    unrolled<count>([&](auto j) __attribute__((always_inline)) {
      float sum = sum_lanes<L>(wide[j]) + rest[j];
      if (g.bias_n) sum += g.bias_n[n + j];
      float& out = g.out_mn[m * g.out_row + n + j];
      out = g.accumulate ? out + g.scale * sum : g.scale * sum;
    });
  }
}

template <class Device>
void dot_gemm(Device& device, const Gemm<float>& g) {
  constexpr int group = 4;
  constexpr Index task_elements =
      1 << 16;  // of `b`: some microseconds of reading, more than starting the threads takes
  const Index task_groups = task_elements / (group * g.K) + 1;
  const Index task_columns = group * task_groups;
  parallel_for(device, blocks_of(g.N, task_columns), [&](Index task, Index) {
    Index n = task * task_columns;
    const Index end = lesser(g.N, n + task_columns);
    for (; n + group <= end; n += group) dot_columns<group>(g, n);
    for (; n < end; ++n) dot_columns<1>(g, n);
  });
}

// a_row = 1, b_col = 1, no bias. `out` is cut into blocks, and where they are too few for many threads, K into parts,
// each with an output of its own; the parts are added up in order.
template <class Device>
void column_gemm(Device& device, const Gemm<float>& g) {
  constexpr Index max_rows = 11 * 12;
  constexpr Index max_k = 256;
  constexpr Index enough_tasks = 24;
  constexpr Index least_k_of_part = 128;
  const Index M = g.M, N = g.N, K = g.K;
  const Index m_blocks = blocks_of(M, max_rows), n_blocks = blocks_of(N, block_columns);
  const Index block_m = blocks_of(blocks_of(M, tile_rows), m_blocks) * tile_rows;
  const Index block_n = blocks_of(blocks_of(N, tile_columns), n_blocks) * tile_columns;
  const Index wanted = blocks_of(enough_tasks, m_blocks * n_blocks);
  const Index parts = K < 2 * least_k_of_part ? 1 : lesser(wanted, K / least_k_of_part);

  typename Device::Scope scratch(device.workspace);
  const Index worker_floats = (block_m + block_n) * max_k;
  float* packed = scratch.template take<float>(device.threads.count() * worker_floats);
  float* part_pmn = parts > 1 ? scratch.template take<float>(parts * M * N) : nullptr;

  parallel_for(device, parts * m_blocks * n_blocks, [&](Index task, Index worker) {
    float* a = packed + worker * worker_floats;
    float* b = a + block_m * max_k;
    const Index part = task / (m_blocks * n_blocks);
    const Index m_begin = task / n_blocks % m_blocks * block_m, m_end = lesser(M, m_begin + block_m);
    const Index n_begin = task % n_blocks * block_n, n_end = lesser(N, n_begin + block_n);
    const Index k_begin = part * K / parts, k_end = (part + 1) * K / parts;
    for (Index k = k_begin; k < k_end; k += max_k) {
      const Index count = lesser(max_k, k_end - k);
      pack_rows<tile_rows>(a, g.a_mk + m_begin + k * g.a_col, g.a_col, m_end - m_begin, count);
      pack_rows<tile_columns>(b, g.b_kn + n_begin + k * g.b_row, g.b_row, n_end - n_begin, count);
      for (Index n = n_begin; n < n_end; n += tile_columns) {
        for (Index m = m_begin; m < m_end; m += tile_rows) {
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
          tile<1, tile_rows>(target, a + (m - m_begin) * count, b + (n - n_begin) * count, count);
        }
      }
    }
  });

  if (parts == 1) return;
  parallel_rows(device, M, 16, [&](Index m) {
    float* out_n = g.out_mn + m * g.out_row;
    for_lanes<float>(N, [&]<class L>(Index n) {
      L sum = load<L>(part_pmn + m * N + n);
      for (Index part = 1; part < parts; ++part) sum += load<L>(part_pmn + (part * M + m) * N + n);
      store<L>(out_n + n, g.accumulate ? load<L>(out_n + n) + g.scale * sum : g.scale * sum);
    });
  });
}

#endif

// M, N, K >= 0, no element of `out` written where M or N is 0.
template <class Device, class T>
void gemm(Device& device, const Gemm<T>& g) {
#if ABH_LANE_BYTES > 4
  if constexpr (is_float<T>) {
    if (g.M == 0 || g.N == 0) return;
    if (g.a_col != 1) {
      column_gemm(device, g);
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
