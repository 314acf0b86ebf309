#pragma once

// Matrix product of bf16 matrices by AMX tiles: 16 x 16 sums, to which one instruction adds the products of 16 pairs
// along k. Unit is the hardware (cpu/units) or a bitwise equal emulation in portable code.

#include "cpu/gemm/gemm_narrow.hpp"
#include "cpu/gemm/pair_panels.hpp"

namespace abh {
inline namespace ABH_ISA {

inline constexpr Index amx_side = 16;  // rows, columns and pairs of a tile

// Arithmetic of the instruction (docs/bf16.md): subnormal numbers count as zero everywhere.
inline float without_subnormals(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  if ((bits & 0x7F800000) == 0) bits &= 0x80000000;
  std::memcpy(&x, &bits, sizeof(bits));
  return x;
}
inline float element_of(Pair pair, bool odd) {
  const Pair bits = odd ? pair & 0xFFFF0000 : pair << 16;
  float x;
  std::memcpy(&x, &bits, sizeof(bits));
  return without_subnormals(x);
}

struct EmulatedTiles {
  struct Session {};

  // Adds the product of one tile: rows of `a` are a_row apart; rows of `b`, one per pair, are contiguous.
  static void add_product(float* sum_mn, Index sum_row, const Pair* a, Index a_row, const Pair* b) {
    for (Index m = 0; m < amx_side; ++m) {
      for (Index n = 0; n < amx_side; ++n) {
        float of[2] = {};  // separate sums of even and odd elements
        for (Index pair = 0; pair < amx_side; ++pair) {
          for (const bool odd : {false, true}) {
            const float x = element_of(a[m * a_row + pair], odd), y = element_of(b[pair * amx_side + n], odd);
            of[odd] = without_subnormals(__builtin_fmaf(x, y, of[odd]));
          }
        }
        float& sum = sum_mn[m * sum_row + n];
        sum = without_subnormals(without_subnormals(sum) + without_subnormals(of[0] + of[1]));
      }
    }
  }

  // sum (+)= a b for two by two tiles: the two panels of `b` are b_half numbers apart.
  static void multiply(float* sum_mn, Index sum_row, const Pair* a, Index a_row, const Pair* b, Index b_half,
                       Index steps, bool add) {
    for (Index m = 0; m < 2 * amx_side; ++m) {
      for (Index n = 0; n < 2 * amx_side && !add; ++n) sum_mn[m * sum_row + n] = 0;
    }
    for (Index step = 0; step < steps; step += amx_side) {
      for (Index i = 0; i < 2; ++i) {
        for (Index j = 0; j < 2; ++j) {
          add_product(sum_mn + i * amx_side * sum_row + j * amx_side, sum_row, a + i * amx_side * a_row + step, a_row,
                      b + j * b_half + step * amx_side);
        }
      }
    }
  }
};

template <class Unit>
struct AmxTiles {
  using Number = Pair;
  using Session = typename Unit::Session;
  static constexpr Index rows = 2 * amx_side, columns = 2 * amx_side, most_rows = 40 * rows, most_columns = 256;
  static constexpr Index a_slack = 0;
  static constexpr Index steps_of(Index K) { return blocks_of(K, 2 * amx_side) * amx_side; }

  // Stores the sums row by row.
  template <class Out>
  static void pack_a(Pair* panel, const Gemm<bf16, Out>& g, Index m, Index count_m, Index k, Index count) {
    const Index steps = steps_of(count);
    if (g.a_col == 1) {
      for (Index r = 0; r < rows; ++r) {
        copy_pairs(panel + r * steps, g.a_mk + (m + r) * g.a_row + k, r < count_m ? count : 0, steps);
      }
      return;
    }
    Pair pairs[amx_side * rows + pair_slack];
    for (Index step = 0; step < steps; step += amx_side) {
      pack_pairs<rows>(pairs, g.a_mk, g.a_col, g.a_row, m, count_m, g.M, k + 2 * step, count - 2 * step, amx_side);
      transpose_words(panel + step, steps, amx_side, pairs, rows, amx_side, rows);
    }
  }
  template <class Out>
  static void pack_b(Pair* panel, const Gemm<bf16, Out>& g, Index n, Index count_n, Index k, Index count) {
    const Index steps = steps_of(count);
    for (Index half = 0; half < columns; half += amx_side) {
      const Index some = max_of(min_of(count_n - half, amx_side), 0);
      pack_pairs<amx_side>(panel + half * steps, g.b_kn, g.b_row, g.b_col, n + half, some, g.N, k, count, steps);
    }
  }
  static void multiply(float* out, Index out_row, const Pair* a, const Pair* b, Index, Index, Index steps, bool add,
                       bool) {
    Unit::multiply(out, out_row, a, steps, b, amx_side * steps, steps, add);
  }

  // For attention: a strip of rows times a panel of b_steps pairs, from pair `first` of the panel on. The pairs of a
  // row are contiguous; ready_strip moves them to the buffer if they are not.
  static constexpr Index pairs_at_once = amx_side, strip_buffer = rows * 4 * amx_side;
  static PairRows ready_strip(PairRows a, Index steps, Pair* buffer) {
    if (a.step == 1) return a;
    transpose_words(buffer, steps, steps, a.first, a.step, steps, rows);
    return {buffer, steps, 1};
  }
  static void multiply_pairs(float* out, Index out_row, PairRows a, const Pair* b, Index b_steps, Index first,
                             Index steps, Index, bool add) {
    Unit::multiply(out, out_row, a.first, a.row, b + first * amx_side, amx_side * b_steps, steps, add);
  }
};

}  // namespace ABH_ISA
}  // namespace abh
