#pragma once

// Matrix product of bf16 matrices (Gemm, layers/parts/products.hpp). Operands are packed for the tiles of an
// instruction, sums are floats, and an output is rounded once. Tiles describes the instruction:
//
//   Number                        of a packed operand: one k, or a pair of them
//   rows, columns                 of a tile
//   most_rows, most_columns       of a block of `out`, which is a task
//   steps_of(K)                   Numbers that K numbers along k are packed into
//   pack_a(panel, g, m, rows, k, count), pack_b(panel, g, n, columns, k, count)
//   multiply(out, out_row, a, b, rows, columns, steps, add, by_columns)
//   Session                       lives as long as a task multiplies
//
// Every element is summed in the order of k within a block of K, and over the blocks in order.

#include "cpu/gemm/gemm_tile.hpp"

namespace abh {
inline namespace ABH_ISA {

// Rows prefetched when packing reads a few columns of each row: hardware prefetchers do not detect this pattern.
inline constexpr Index rows_ahead = 16;

// Tiles of the portable product: packing converts bf16 to float.
struct WidenedTiles {
  using Number = float;
  struct Session {};
  static constexpr Index rows = tile_rows, columns = tile_columns;
  static constexpr Index most_rows = 80 * rows, most_columns = 512;
  static constexpr Index a_slack = a_reads;  // numbers that a tile reads after a panel
  static constexpr Index steps_of(Index K) { return K; }

  // Packs rows m to m + count_m of `a`: row by row if rows are contiguous, else step by step.
  template <class Out>
  static void pack_a(float* panel, const Gemm<bf16, Out>& g, Index m, Index count_m, Index k, Index count) {
    if (g.a_col == 1) {
      for (Index r = 0; r < rows; ++r) {
        const bf16* from = g.a_mk + (m + r) * g.a_row + k;
        float* to = panel + r * count;
        const bool there = r < count_m;
        for_lanes<bf16>(count, [=]<class L>(Index i) { store<L>(to + i, there ? load<L>(from + i) : L{}); });
      }
    } else {
      // Stores whole vectors if a row fills one; the extra elements are overwritten by the next step or never read.
      const bool vectors = a_reads == lanes && m + a_reads <= g.M;
      for (Index i = 0; i < count; ++i) {
        const bf16* from = g.a_mk + m + (k + i) * g.a_col;
        if (vectors) {
          store<Wide<float>>(panel + i * rows, load<Wide<float>>(from));
        } else {
          widen(panel + i * rows, from, count_m, rows);
        }
      }
    }
  }

  // Packs columns n to n + count_n of `b`, step by step.
  template <class Out>
  static void pack_b(float* panel, const Gemm<bf16, Out>& g, Index n, Index count_n, Index k, Index count) {
    if (g.b_col == 1) {
      for (Index i = 0; i < count; ++i) {
        const bf16* from = g.b_kn + n + (k + i) * g.b_row;
        if (i + rows_ahead < count) __builtin_prefetch(from + rows_ahead * g.b_row);
        widen(panel + i * columns, from, count_n, columns);
      }
      return;
    }
    constexpr Index piece = 64;
    alignas(64) float wide[columns * piece];
    for (Index begin = 0; begin < count; begin += piece) {
      const Index size = min_of(piece, count - begin);
      for (Index c = 0; c < count_n; ++c) {
        const bf16* from = g.b_kn + (n + c) * g.b_col + k + begin;
        float* to = wide + c * piece;
        for_lanes<bf16>(size, [=]<class L>(Index i) { store<L>(to + i, load<L>(from + i)); });
      }
      pack_transposed(panel + begin * columns, wide, piece, count_n, size);
    }
  }

  static void multiply(float* out, Index out_row, const float* a, const float* b, Index count_m, Index count_n,
                       Index steps, bool add, bool by_columns) {
    const TileTarget target{.out_mn = out,
                            .out_row = out_row,
                            .bias_n = nullptr,
                            .rows = (count_m + 1) / 2 * 2,
                            .columns = count_n <= half_columns ? half_columns : tile_columns,
                            .scale = 1,
                            .accumulate = add};
    const TileOperands operands{
        .a = a, .a_stride = by_columns ? rows : steps, .b = b, .b_row = columns, .K = steps, .ahead = a};
    by_columns ? multiply_tile<GemmOrder::columns>(target, operands) : multiply_tile<GemmOrder::rows>(target, operands);
  }

 private:
  // Converts `count` numbers to float; zeros up to `size`.
  static void widen(float* to, const bf16* from, Index count, Index size) {
    for_lanes<bf16>(count, [=]<class L>(Index i) { store<L>(to + i, load<L>(from + i)); });
    for (Index i = count; i < size; ++i) to[i] = 0;
  }
};

// Writes a row of sums: scaled, with bias, added to the output, rounded.
template <class Out>
inline void finish_row(const Gemm<bf16, Out>& g, const float* sum_n, Index m, Index n_begin, Index n_end) {
  Out* out = g.out_mn + m * g.out_row + n_begin;
  const bf16* bias_n = g.bias_n ? g.bias_n + n_begin : nullptr;
  const float scale = g.scale;
  const bool accumulate = g.accumulate;
  for_lanes<Out>(n_end - n_begin, [=]<class L>(Index n) {
    L sum = load<L>(sum_n + n);
    if (bias_n) sum += load<L>(bias_n + n);
    sum *= scale;
    store<L>(out + n, accumulate ? load<L>(out + n) + sum : sum);
  });
}

// Sums of the rows of `a` with contiguous columns: partial sums of a few steps, which are then added.
template <class Device>
void sum_rows_of_a(Device& device, const Gemm<bf16, float>& g) {
  constexpr Index rows_per_task = 64, few = 256;
  parallel_pieces(device, g.M, rows_per_task, [&](Index begin, Index end) {
    for (Index first = 0; first < g.K; first += few) {
      float sum_m[rows_per_task] = {};
      for (Index k = first; k < min_of(g.K, first + few); ++k) {
        const bf16* a_m = g.a_mk + k * g.a_col + begin;
        for_lanes<bf16>(end - begin,
                        [&]<class L>(Index m) { store<L>(sum_m + m, load<L>(sum_m + m) + load<L>(a_m + m)); });
      }
      for_lanes<float>(end - begin, [&]<class L>(Index m) {
        float* out = g.row_sum_m + begin + m;
        const L sum = g.scale * load<L>(sum_m + m);
        store<L>(out, g.accumulate || first > 0 ? load<L>(out) + sum : sum);
      });
    }
  });
}

// Few rows of `a` (inference), b_row = 1: columns of `b` are read once, in place.
template <class Device, class Out>
void narrow_dot_gemm(Device& device, const Gemm<bf16, Out>& g) {
  constexpr Index task_elements = 1 << 16;
  parallel_pieces(device, g.N, task_elements / max_of(g.K, 1) + 1, [&](Index begin, Index end) {
    for (Index n = begin; n < end; ++n) {
      const bf16* b_k = g.b_kn + n * g.b_col;
      for (Index m = 0; m < g.M; ++m) {
        const bf16* a_k = g.a_mk + m * g.a_row;
        RowSum<bf16> sum;
        for_terms<bf16>(g.K, [=, &sum]<class L>(Index k) { sum.add_product(load<L>(a_k + k), load<L>(b_k + k)); });
        const float total = sum.total();
        finish_row(g, &total, m, n, n + 1);
      }
    }
  });
}

// A task has a block of `out` and keeps its sums while it loops over K.
template <class Tiles, class Device, class Out>
void tiled_narrow_gemm(Device& device, const Gemm<bf16, Out>& g) {
  using Number = typename Tiles::Number;
  constexpr Index most_columns = Tiles::most_columns, most_rows = Tiles::most_rows, block_k = 512;
  const Index workers = device.threads.count(), enough_tasks = 4 * workers;  // more tasks pack `b` more often
  const Index n_blocks = blocks_of(g.N, most_columns);
  const Index block_n = blocks_of(blocks_of(g.N, n_blocks), Tiles::columns) * Tiles::columns;
  const Index m_wanted = blocks_of(enough_tasks, n_blocks);
  const Index m_each = blocks_of(blocks_of(g.M, max_of(m_wanted, blocks_of(g.M, most_rows))), Tiles::rows);
  const Index block_m = m_each * Tiles::rows, m_blocks = blocks_of(g.M, block_m);
  const Index most_steps = Tiles::steps_of(min_of(g.K, block_k));
  const bool by_columns = g.a_col != 1;
  const bool one_block = g.K <= block_k;  // one block of K: the sums of a tile are complete

  const Index b_size = most_steps * block_n, a_size = most_steps * Tiles::rows + Tiles::a_slack;
  typename Device::Scope scratch(device.workspace);
  const Index sums_size = (one_block ? Tiles::rows : block_m) * block_n;
  float* all_sums = scratch.template take<float>(workers * sums_size);
  Number* all_b = scratch.template take<Number>(workers * b_size);
  Number* all_a = scratch.template take<Number>(workers * a_size);
  parallel_for(device, m_blocks * blocks_of(g.N, block_n), [&](Index task, Index worker) {
    const Index m_begin = task % m_blocks * block_m, m_end = min_of(g.M, m_begin + block_m);
    const Index n_begin = task / m_blocks * block_n, n_end = min_of(g.N, n_begin + block_n);
    float* sums = all_sums + worker * sums_size;
    Number* b = all_b + worker * b_size;
    Number* a = all_a + worker * a_size;
    [[maybe_unused]] const typename Tiles::Session session;
    for (Index k = 0; k < g.K; k += block_k) {
      const Index count = min_of(block_k, g.K - k), steps = Tiles::steps_of(count);
      for (Index n = n_begin; n < n_end; n += Tiles::columns) {
        Tiles::pack_b(b + (n - n_begin) * steps, g, n, min_of(Tiles::columns, n_end - n), k, count);
      }
      for (Index m = m_begin; m < m_end; m += Tiles::rows) {
        const Index rows = min_of(Tiles::rows, m_end - m);
        Tiles::pack_a(a, g, m, rows, k, count);
        float* sum_rn = sums + (one_block ? 0 : m - m_begin) * block_n;
        for (Index n = n_begin; n < n_end; n += Tiles::columns) {
          Tiles::multiply(sum_rn + n - n_begin, block_n, a, b + (n - n_begin) * steps, rows,
                          min_of(Tiles::columns, n_end - n), steps, k > 0, by_columns);
        }
        if (k + count < g.K) continue;
        for (Index r = 0; r < rows; ++r) finish_row(g, sum_rn + r * block_n, m + r, n_begin, n_end);
      }
    }
  });
}

}  // namespace ABH_ISA
}  // namespace abh
