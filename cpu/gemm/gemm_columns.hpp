#pragma once

// Matrix product with contiguous columns of `a`: column_gemm and packed_column_gemm. SIMD floats only.

#include "cpu/gemm/gemm_tile.hpp"

namespace abh {
inline namespace ABH_ISA {

// Work of one task: steps [k, k + count) of the sums in a block of `out`.
struct ColumnBlock {
  Index m_begin, m_end, n_begin, n_end, k, count;
};

// Tiles of a block, with operands read in place. At an edge a tile reads into the next row, and these results are
// discarded. The last rows, where it would read beyond the matrix, are copied.
template <class Target>
inline void column_tiles(const Gemm<float>& g, const ColumnBlock& block, const Target& target_of) {
  // Maximum number of last rows that need a copy: with rows of one number, all numbers after the first are beyond the
  // row.
  constexpr int most_copied = a_reads > half_columns ? a_reads : half_columns;
  for (Index n = block.n_begin; n < block.n_end; n += tile_columns) {
    for (Index m = block.m_begin; m < block.m_end; m += tile_rows) {
      if (is_unused(g, m, n)) break;
      TileTarget target = target_of(m, n);
      TileOperands operands{.a = g.a_mk + m + block.k * g.a_col,
                            .a_stride = g.a_col,
                            .b = g.b_kn + n + block.k * g.b_row,
                            .b_row = g.b_row,
                            .K = block.count};
      const Index b_reads = target.columns <= half_columns ? half_columns : tile_columns;
      const Index last_whole =
          g.K - max_of(blocks_of(m + a_reads - g.M, g.a_col), blocks_of(n + b_reads - g.N, g.b_row));
      if (last_whole >= block.k + block.count) {
        multiply_tile<GemmOrder::columns>(target, operands);
        continue;
      }
      operands.K = max_of(last_whole - block.k, 0);
      multiply_tile<GemmOrder::columns>(target, operands);
      float a_copy[most_copied * a_reads], b_copy[most_copied * tile_columns];
      std::memset(a_copy, 0, sizeof(a_copy));
      std::memset(b_copy, 0, sizeof(b_copy));
      for (Index row = block.k + operands.K; row < block.k + block.count; ++row) {
        const Index copied = row - block.k - operands.K;
        copy_few(a_copy + copied * a_reads, g.a_mk + m + row * g.a_col, target.rows);
        copy_few(b_copy + copied * tile_columns, g.b_kn + n + row * g.b_row, target.columns);
      }
      target.accumulate = true;
      multiply_tile<GemmOrder::columns>(
          target,
          {.a = a_copy, .a_stride = a_reads, .b = b_copy, .b_row = tile_columns, .K = block.count - operands.K});
    }
  }
}

// a_row = 1, b_col = 1, no bias. `out` is cut into blocks. If K is long and blocks are few, K is also cut into parts
// with separate outputs, which are added in order.
template <class Device>
void column_gemm(Device& device, const Gemm<float>& g) {
  constexpr Index max_rows = 11 * 12, max_columns = 256, max_k = 256;
  constexpr Index enough_tasks = 24, long_part = 1024, least_part = 128;
  const Index M = g.M, N = g.N, K = g.K;
  const Index m_tiles = blocks_of(M, tile_rows), n_tiles = blocks_of(N, tile_columns);
  Index m_blocks = blocks_of(M, max_rows), n_blocks = blocks_of(N, max_columns);
  const auto cut_k = [&](Index least) {
    const Index most = K / least > 0 ? K / least : 1;
    return min_of(blocks_of(enough_tasks, m_blocks * n_blocks), most);
  };
  Index parts = cut_k(long_part);
  while (parts * m_blocks * n_blocks < enough_tasks && m_blocks * n_blocks < m_tiles * n_tiles) {
    if (m_tiles * n_blocks > n_tiles * m_blocks) {
      m_blocks = min_of(2 * m_blocks, m_tiles);
    } else {
      n_blocks = min_of(2 * n_blocks, n_tiles);
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
    const Index m_begin = task % m_blocks * block_m, m_end = min_of(M, m_begin + block_m);
    const Index n_begin = task / m_blocks % n_blocks * block_n, n_end = min_of(N, n_begin + block_n);
    const Index k_begin = part * K / parts, k_end = (part + 1) * K / parts;
    for (Index k = k_begin; k < k_end; k += max_k) {
      column_tiles(g, {m_begin, m_end, n_begin, n_end, k, min_of(max_k, k_end - k)}, [&](Index m, Index n) {
        TileTarget target{.out_mn = g.out_mn + m * g.out_row + n,
                          .out_row = g.out_row,
                          .bias_n = nullptr,
                          .rows = min_of(tile_rows, m_end - m),
                          .columns = min_of(tile_columns, n_end - n),
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

// Tile of a block at (m, n); its rows end at m_end, its columns at n_end.
inline TileTarget column_target(const Gemm<float>& g, Index m, Index m_end, Index n, Index n_end, bool first_steps) {
  return {.out_mn = g.out_mn + m * g.out_row + n,
          .out_row = g.out_row,
          .bias_n = nullptr,
          .rows = min_of(tile_rows, m_end - m),
          .columns = min_of(tile_columns, n_end - n),
          .scale = g.scale,
          .accumulate = g.accumulate || !first_steps,
          .row_sum_m = g.row_sum_m && n == 0 ? g.row_sum_m + m : nullptr};
}

// packed_column_gemm reads `a` in place if `out` has at most this many rows, because rows of `a` are then short and
// close together, or if `out` has few columns, because `a` is then read rarely.
inline constexpr Index narrow_rows = lanes == 16 ? 768 : 128;
inline constexpr Index narrow_columns = lanes == 16 ? 256 : 0;

// Block for this case: this part of `a` fits the L2 cache, a panel of `b` the L1 cache.
inline constexpr Index narrow_part_rows = lanes == 16 ? 384 : narrow_rows, narrow_part_steps = 256;

// Tiles of such a part. The first tile of a column packs its panel of `b` for the others. Narrow SIMD also packs `a` if
// it is used with many columns. The last tiles, which would read beyond the matrix, use a copy.
inline void narrow_part_tiles(const Gemm<float>& g, const ColumnBlock& part) {
  constexpr Index many_columns = 256, last_tiles = 2;
  constexpr Index panel_size = narrow_part_steps * tile_rows + a_reads;
  constexpr Index panels = tiles_pack_a ? blocks_of(narrow_part_rows, tile_rows) : last_tiles;
  alignas(64) float a_panels[panels * panel_size];
  alignas(64) float b_panel[narrow_part_steps * tile_columns];
  const bool packs_a = tiles_pack_a && g.N > many_columns;
  const float* a_mk = g.a_mk + part.k * g.a_col;
  const float* b_kn = g.b_kn + part.k * g.b_row;
  for (Index n = part.n_begin; n < part.n_end; n += tile_columns) {
    float* a_panel = a_panels;
    for (Index m = part.m_begin, rows; m < part.m_end; m += rows) {
      // Two tiles of four rows are faster than six and two: two rows have too few sums to hide latency.
      const Index left = part.m_end - m;
      rows = left == tile_rows + 1 || left == tile_rows + 2 ? tile_rows - 2 : min_of(tile_rows, left);
      const bool first = n == part.n_begin, a_ends = m + a_reads > g.M;
      if (first && a_ends) pack_rows<tile_rows>(a_panel, 0, a_mk + m, g.a_col, rows, part.count);
      TileOperands operands{.a = a_panel, .a_stride = tile_rows, .b = b_panel, .b_row = tile_columns, .K = part.count};
      if (!a_ends && (first || !packs_a)) {
        operands.a = a_mk + m;
        operands.a_stride = g.a_col;
        if (packs_a) operands.a_panel = a_panel;
      }
      if (m == part.m_begin) pack_in_passing(operands, b_panel, b_kn + n, g.b_row, g.N - n);
      // A tile that packs an operand for other tiles is computed in any case.
      if (!is_unused(g, m, n) || m == part.m_begin || operands.a_panel) {
        multiply_tile<GemmOrder::columns>(column_target(g, m, m + rows, n, part.n_end, part.k == 0), operands);
      }
      if (packs_a || a_ends) a_panel += panel_size;
    }
  }
}

// Tiles of a block, part by part.
inline void narrow_column_tiles(const Gemm<float>& g, const ColumnBlock& block) {
  const Index k_parts = blocks_of(block.count, narrow_part_steps);
  const Index m_tiles = blocks_of(block.m_end - block.m_begin, tile_rows);
  const Index m_parts = blocks_of(block.m_end - block.m_begin, narrow_part_rows);
  for (Index k_part = 0; k_part < k_parts; ++k_part) {
    for (Index m_part = 0; m_part < m_parts; ++m_part) {
      ColumnBlock part = block;
      part.m_begin = block.m_begin + m_part * m_tiles / m_parts * tile_rows;
      part.m_end = min_of(block.m_end, block.m_begin + (m_part + 1) * m_tiles / m_parts * tile_rows);
      part.k = block.k + k_part * block.count / k_parts;
      part.count = block.k + (k_part + 1) * block.count / k_parts - part.k;
      narrow_part_tiles(g, part);
    }
  }
}

// Steps per pass over packed operands: a panel of `b` stays in the L1 cache.
inline constexpr Index packed_steps = lanes == 16 ? 128 : 256;
inline constexpr Index packed_a_panel = packed_steps * tile_rows + a_reads;

// Some steps in some rows of a block; `packed` of these steps are in the panels at `a`.
struct ColumnGroup {
  Index k, count, m, m_end;
  float* a;
  Index packed = 0;
};

// The same for more rows; b_panels holds the block's columns of `b`. Rows of `a` are a page apart, so they are packed
// one group of tiles ahead, a few rows between two tiles, with all columns of the group. A tile reads a panel of `b`
// from the L1 cache, where it stays for a group of tiles, and a panel of `a` from the L2 cache.
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
                       .m_end = min_of(block.m_end, m_of(i % groups + 1)),
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
        if (next.packed < next.count) pack(next, min_of(rows_each, next.count - next.packed));
        TileOperands operands{.a = a, .a_stride = tile_rows, .b = b_panel, .b_row = tile_columns, .K = group.count};
        if (m == block.m_begin) pack_in_passing(operands, b_panel, b_kn, g.b_row, g.N - n);
        multiply_tile<GemmOrder::columns>(column_target(g, m, group.m_end, n, block.n_end, group.k == 0), operands);
      }
    }
    group = next;
  }
}

// column_gemm for tiles that read often and rows that are long: with a power of two of columns, all rows map to the
// same few sets of the L1 cache. Every task packs its own operands, because reading data that another core has just
// written is slower than packing again.
template <class Device>
void packed_column_gemm(Device& device, const Gemm<float>& g) {
  const Index M = g.M, N = g.N, K = g.K;
  const Index m_tiles = blocks_of(M, tile_rows), n_tiles = blocks_of(N, tile_columns);
  const bool narrow = M <= narrow_rows || N < narrow_columns;

  // Usually one task per worker: fewer tasks pack less. The task with most tiles determines the time; packing a row or
  // a column of tiles counts as one tile. Wide SIMD needs more of `b` in the same time, so a task's part of it must fit
  // the L2 cache.
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
  const Index task_elements = narrow ? 0 : min_of(K, packed_steps) * blocks_of(n_tiles, n_tasks) * tile_columns;
  float* b_panels = scratch.template take<float>(workers * task_elements);
  parallel_for(device, m_tasks * n_tasks, [&](Index task, Index worker) {
    const Index m_task = task % m_tasks, n_task = task / m_tasks;
    const ColumnBlock block{.m_begin = row_of(m_task),
                            .m_end = row_of(m_task + 1),
                            .n_begin = n_task * n_tiles / n_tasks * tile_columns,
                            .n_end = min_of(N, (n_task + 1) * n_tiles / n_tasks * tile_columns),
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

}  // namespace ABH_ISA
}  // namespace abh
