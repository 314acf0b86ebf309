#pragma once

// Matrix product with contiguous rows of `a`: row_gemm and, for few rows, dot_gemm. SIMD floats only.

#include "cpu/gemm/gemm_tile.hpp"

namespace abh {
inline namespace ABH_ISA {

// b_row = 1: columns of `b` are contiguous. A column is multiplied with one row of `a` after another, four SIMD vectors
// at a time. A large `b`, read in memory order, then uses the full memory bandwidth.
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
        wide[i] = fused<L>(load<L>(a_k + k + i * lanes), load<L>(b_k + k + i * lanes), wide[i]);
      });
    }
    for (; k + lanes <= g.K; k += lanes) wide[0] = fused<L>(load<L>(a_k + k), load<L>(b_k + k), wide[0]);
    float sum = sum_lanes<L>((wide[0] + wide[1]) + (wide[2] + wide[3]));
    if constexpr (lanes > 4) {  // as RowSum handles the rest of a row
      using Half = HalfWide<float>;
      if (k + lanes / 2 <= g.K) {
        const Half product = load<Half>(a_k + k) * load<Half>(b_k + k);
        for (int i = 0; i < lanes / 2; ++i) sum += product[i];
        k += lanes / 2;
      }
    }
    for (; k < g.K; ++k) sum = fused<float>(a_k[k], b_k[k], sum);
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

  // Consecutive tasks cover the rows of one block of columns. A worker packs a block when it starts on it, because data
  // that another core has just written is slow to read. Two workers may both pack one block, so blocks are narrower if
  // there are fewer rows per worker.
  constexpr Index enough_rows = 192;
  const Index workers = device.threads.count();
  Index n_block = block_columns;
  while (n_block > tile_columns && M * blocks_of(N, n_block) < enough_rows * workers) n_block /= 2;
  const Index n_blocks = blocks_of(N, n_block), n_tiles = blocks_of(N, tile_columns);
  // All blocks have about equal width, because every worker gets equally many tasks: 384 columns become twice 192, not
  // 256 and 128.
  const auto block_begin = [&](Index block) { return min_of(N, block * n_tiles / n_blocks * tile_columns); };
  const Index packed_columns = pack ? blocks_of(n_tiles, n_blocks) * tile_columns : 0;
  typename Device::Scope scratch(device.workspace);
  float* all_packed = scratch.template take<float>(workers * K * packed_columns);
  constexpr Index apart = 64 / sizeof(Index);  // one cache line each
  // Block that a worker has packed; -1: none.
  Index* packed_block = scratch.template take<Index>(workers * apart);
  on_one_thread(device, [&] {
    for (Index worker = 0; worker < workers; ++worker) packed_block[worker * apart] = -1;
  });

  // A task loops over blocks of K alone, with a few rows, so that a block of `b` stays in cache.
  constexpr Index most_tiles = 8, enough_tasks = 32;
  const Index tiles_each = blocks_of(M, tile_rows) * n_blocks / enough_tasks;
  const Index task_rows = min_of(max_of(tiles_each, 1), most_tiles) * tile_rows;
  const Index m_tasks = blocks_of(M, task_rows), tasks = m_tasks * n_blocks;
  parallel_for(device, tasks, [&](Index task, Index worker) {
    alignas(64) float a_copy[tile_rows * a_copy_stride];
    const Index m_begin = task % m_tasks * task_rows, m_end = min_of(M, m_begin + task_rows);
    const Index column_block = task / m_tasks;
    const Index n_begin = block_begin(column_block), n_end = block_begin(column_block + 1);
    const bool first_of_block = pack && packed_block[worker * apart] != column_block;
    packed_block[worker * apart] = column_block;
    float* packed = all_packed + worker * K * packed_columns;
    for (Index k = 0, k_end, block = 1; k < K; k = k_end, ++block) {
      // An odd first step is one to two per cent faster for K of 768 to 1,536 on Zen 3.
      k_end = min_of(K, (block * K / k_blocks) | 1);
      const Index count = k_end - k;
      float* panels = packed + k * packed_columns;
      if (first_of_block && g.b_col != 1) {
        for (Index n = n_begin; n < n_end; n += tile_columns) {
          pack_transposed(panels + (n - n_begin) * count, g.b_kn + k + n * g.b_col, g.b_col,
                          min_of(tile_columns, N - n), count);
        }
      }
      for (Index m = m_begin; m < m_end; m += tile_rows) {
        const bool packs_rows = m == m_begin && first_of_block && g.b_col == 1;
        const Index rows = min_of(tile_rows, m_end - m);
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
          if (is_unused(g, m, n) && !packs_rows) continue;
          // Every tile prefetches a row of `a` for later tiles: the hardware prefetcher is late for six new streams.
          const Index next = m + tile_rows + (n - n_begin) / tile_columns;
          operands.ahead = next < min_of(m + 2 * tile_rows, m_end) ? g.a_mk + next * g.a_row + k : operands.a;
          operands.b = pack ? panels + (n - n_begin) * count : g.b_kn + k * g.b_row + n;
          operands.b_row = pack ? Index{tile_columns} : g.b_row;
          if (packs_rows) {
            pack_in_passing(operands, panels + (n - n_begin) * count, g.b_kn + k * g.b_row + n, g.b_row, N - n);
          }
          multiply_tile<GemmOrder::rows>({.out_mn = g.out_mn + m * g.out_row + n,
                                          .out_row = g.out_row,
                                          .bias_n = g.bias_n && k == 0 ? g.bias_n + n : nullptr,
                                          .rows = rows,
                                          .columns = min_of(tile_columns, N - n),
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
  // Numbers of `b` per task: reading them takes some microseconds, longer than the start of the threads.
  constexpr Index task_elements = 1 << 16;
  const Index task_columns = task_elements / max_of(g.K, 1) + 1;
  parallel_for(device, blocks_of(g.N, task_columns), [&](Index task, Index) {
    const Index begin = task * task_columns;
    for (Index n = begin; n < min_of(g.N, begin + task_columns); ++n) dot_column(g, 0, g.M, n);
  });
}

}  // namespace ABH_ISA
}  // namespace abh
