#pragma once

// Matrix product of `linear` (Gemm, layers/linear.hpp) on the CPU. gemm() selects a version:
//   row_gemm        rows of `a` contiguous (forward, gradient of the input): every worker packs the columns of `b` that
//                   it reads, unless `b` is small and stands right and lanes are wide
//   dot_gemm        the same with few rows (inference): `b` is read once, where it stands
//   column_gemm     columns of `a` contiguous (gradient of the weight), `out` of few tiles: operands are read where
//                   they stand
//   packed_column_gemm  the same for all else: `b`, or both operands, are packed on the way
//   narrow_gemm     those of bf16, in tiles or for few rows
//
// All except dot_gemm hold a tile of `out` in registers and loop over k: a step loads a row of `b` in a few SIMD
// vectors and multiplies it by the elements of a column of `a`. Every element is summed in the order of k within a
// block of K, and over the blocks in order, for any thread; in row_gemm also for any row index.

#include "cpu/gemm/gemm_tile.hpp"
#include "plain/plain.hpp"

#if ABH_LANE_BYTES > 4
#include "cpu/gemm/gemm_bf16.hpp"
#include "cpu/gemm/gemm_columns.hpp"
#include "cpu/gemm/gemm_rows.hpp"
#endif

namespace abh {
inline namespace ABH_ISA {

// M, N, K >= 0; nothing is written if M or N is 0. Double, Dual and floats without SIMD use definition(plain), the
// plain loops.
template <class Device, class T, class Out, class Definition>
void gemm(Device& device, const Gemm<T, Out>& g, [[maybe_unused]] const Definition& definition) {
  if constexpr (lane_width < T >> 1) {
    if (g.M == 0 || g.N == 0) return;
    if (g.K == 0) {
      parallel_rows(device, g.M, 16, [&](Index m) {
        for (Index n = 0; n < g.N; ++n) {
          Out& out = g.out_mn[m * g.out_row + n];
          out = fused<float>(g.scale, g.bias_n ? float(g.bias_n[n]) : 0, g.accumulate ? float(out) : 0);
        }
      });
    } else if constexpr (is_narrow<T>) {
      narrow_gemm(device, g);
    } else if (g.a_col != 1 || g.row_sum_m) {
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
  } else {
    on_one_thread(device, [&] {
      PlainDevice plain;
      definition(plain);
    });
  }
}

}  // namespace ABH_ISA
}  // namespace abh
