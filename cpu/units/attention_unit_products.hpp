#pragma once

// Products of attention on bf16 rows by the unit that multiplies bf16 matrices (Tiles, cpu/gemm/gemm_narrow.hpp).
//
// The left factor of a product has a strip of Tiles::rows rows. The right factor consists of panels. Masked columns or
// steps at either end of a strip are left out.

#include "cpu/attention_tiles.hpp"
#include "cpu/gemm/tile_products.hpp"

namespace abh {

namespace {

// Keys of a tile (forward), and about the most keys of a block (backward).
constexpr Index unit_keys = 128;

constexpr Index up_to(Index count, Index step) { return blocks_of(count, step) * step; }

// Part of an interval in a tile of `count` positions from `first` on.
inline Stretch within(Stretch all, Index first, Index count) {
  return {max_of(all.begin - first, 0), min_of(all.end - first, count)};
}

// Packs rows of K channels as strips of a left factor; as columns of a right factor; as its steps.
template <class Tiles>
void pack_left(Pair* strips, Rows<const bf16> x_ck, Index count, Index K) {
  Gemm<bf16, float> g{};
  g.a_mk = x_ck.first, g.a_row = x_ck.stride, g.a_col = 1;
  for (Index c = 0; c < count; c += Tiles::rows) {
    Tiles::pack_a(strips + c * Tiles::steps_of(K), g, c, min_of(Tiles::rows, count - c), 0, K);
  }
}
template <class Tiles>
void pack_right(Pair* panels, const bf16* x, Index row, Index col, Index N, Index K) {
  Gemm<bf16, float> g{};
  g.b_kn = x, g.b_row = row, g.b_col = col, g.N = N;
  for (Index n = 0; n < N; n += Tiles::columns) {
    Tiles::pack_b(panels + n * Tiles::steps_of(K), g, n, min_of(Tiles::columns, N - n), 0, K);
  }
}
template <class Tiles>
void pack_columns(Pair* panels, Rows<const bf16> x_ck, Index count, Index K) {
  pack_right<Tiles>(panels, x_ck.first, 1, x_ck.stride, count, K);
}
template <class Tiles>
void pack_steps(Pair* panels, Rows<const bf16> x_ck, Index count, Index K) {
  pack_right<Tiles>(panels, x_ck.first, x_ck.stride, 1, K, count);
}

// out (+)= strip right, for these columns and these pairs along k. `rows` of the strip are used. panel_steps: pairs of
// a panel. Columns are computed in whole panels, and pairs in whole steps of the unit, so those around must be finite.
template <class Tiles>
void multiply_strip(Rows<float> out, PairRows strip, const Pair* panels, Index panel_steps, Stretch columns,
                    Stretch pairs, Index rows, bool add) {
  const Index first = pairs.begin / Tiles::pairs_at_once * Tiles::pairs_at_once;
  const Index steps = up_to(pairs.end - first, Tiles::pairs_at_once);
  Pair buffer[Tiles::strip_buffer];
  const PairRows left = Tiles::ready_strip({strip.first + first * strip.step, strip.row, strip.step}, steps, buffer);
  for (Index n = columns.begin / Tiles::columns * Tiles::columns; n < columns.end; n += Tiles::columns) {
    Tiles::multiply_pairs(out.first + n, out.stride, left, panels + n * panel_steps, panel_steps, first, steps, rows,
                          add);
  }
}

// Lanes [begin, end) of x; the others are `otherwise`.
template <class L>
L lanes_within(L x, Index begin, Index end, float otherwise) {
  const L lane = lane_numbers<L>(), other = splat<L>(otherwise);
  x = splat<L>(float(begin)) > lane ? other : x;
  return splat<L>(float(end)) > lane ? x : other;
}

// Largest lane, halves first, as sum_halves().
template <int width, class V>
float max_halves(const V& lanes) {
  if constexpr (width == 2) {
    return larger<float>(lanes[0], lanes[1]);
  } else {
    typename LanesOf<float, width / 2>::type halves[2];
    std::memcpy(&halves, &lanes, sizeof(halves));
    return max_halves<width / 2>(larger(halves[0], halves[1]));
  }
}

}  // namespace

}  // namespace abh
