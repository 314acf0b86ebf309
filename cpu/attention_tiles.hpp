#pragma once

// Tiled attention for float, with the SIMD width of this instruction set.

#include "cpu/attention_products.hpp"
#include "cpu/math.hpp"
#include "layers/attention.hpp"

namespace abh {

namespace {

constexpr double infinity = __builtin_inf();

// Rows of head n of sequence b, which has `count` rows; a row holds K channels.
template <class T>
Rows<T> head_rows(T* first, Index stride, Index b, Index n, Index count, Index N, Index K) {
  const Index step = stride_or(stride, N * K);
  return {first ? first + b * count * step + n * K : nullptr, step};
}

template <class T>
void clear_rows(Rows<T> x_ck, Index count, Index K) {
  for (Index c = 0; c < count; ++c) {
    for_lanes<T>(K, [&]<class L>(Index k) { store<L>(x_ck[c] + k, splat<L>(T(0))); });
  }
}

// Factor of the scores.
template <class T, class Arguments>
T score_scale(const Arguments& a) {
  return a.scale > 0 ? T(a.scale) : T(1) / square_root(T(a.K));
}

// Queries or keys per tile: a tile of scores, keys and values fits the L1 and L2 caches.
constexpr Index tile = 64;

// Keys or queries per section. Sections have separate sums: adding small terms to large sums with always the same
// rounding would accumulate an error (docs/layers/attention.md, Long sums).
constexpr Index section = 16 * tile;

// True if an interval of positions covers more than one section.
inline bool in_sections(const Stretch& met) { return !met.empty() && met.begin / section < (met.end - 1) / section; }

// Minimum number of tasks per pass, if there is enough work.
constexpr Index enough_tasks = 16;

// Bias of every head at signed distances x = c + offset - s: the biases of a SIMD vector of queries, or of keys, are
// contiguous. They are divided by the factor of the scores, because they are added before scaling. Scratch memory holds
// two tables, one increasing with c for queries and a mirrored one increasing with s for keys.
template <class T>
struct BiasTable {
  T* first = nullptr;
  Index middle = 0;  // index of distance 0 in a table

  // Allocates the tables. Distances of attended pairs are within the table of the attention mask; in a tile they exceed
  // it by less than a tile.
  template <class Scope, class Element>
  BiasTable(Scope& scratch, const AttentionInputs<Element>& in) {
    const AttentionMask<T>& mask = in.mask;
    if (!mask.distance_bias_nc) return;
    const Index farthest = larger(in.C - 1 + mask.query_offset, in.S - 1 - mask.query_offset);
    middle = min_of(mask.distances, larger(farthest, Index(0)) + 1) + 2 * tile;
    first = scratch.template take<T>(in.N * (2 * middle + 1));
  }
  const T* of_head(Index n) const { return first ? first + n * (2 * middle + 1) + middle : nullptr; }

  template <class Element>
  void fill(const AttentionInputs<Element>& in, Index n) const {
    const AttentionMask<T>& mask = in.mask;
    const T scale = score_scale<T>(in);
    T* bias_x = first + n * (2 * middle + 1) + middle;
    ABH_INDEPENDENT_TURNS
    for (Index x = 0; x <= middle; ++x) {
      const bool there = x < mask.distances;
      bias_x[x] = bias_x[-x] = there ? mask.distance_bias_nc[n * mask.distances + x] / scale : T(0);
    }
  }
};

// Rows per block, in whole tiles: queries that read one tile of keys after another (forward), or keys that read tiles
// of queries (backward). Larger blocks load these tiles less often. A block should fit the L2 cache, blocks are
// distributed over threads, and a block longer than the sequence wastes memory. The size depends on the shape alone.
constexpr Index most_rows = 8 * tile;
constexpr Index most_numbers = most_rows * 64;
inline Index block_rows(Index heads, Index C, Index K) {
  const auto too_many = [&](Index rows) {
    return rows >= 2 * C || rows * K > most_numbers || heads * blocks_of(C, rows) < enough_tasks;
  };
  Index rows = most_rows;
  while (rows > tile && too_many(rows)) rows /= 2;
  return rows;
}

// 0, 1, 2, ...
template <class L>
L lane_numbers() {
  ScalarOf<L> numbers[width_of<L>];
  for (int i = 0; i < width_of<L>; ++i) numbers[i] = ScalarOf<L>(i);
  return load<L>(numbers);
}

// Per lane: position of its query relative to query c, in keys.
template <class L, class T>
L places_behind(const AttentionMask<T>& mask, Index c) {
  if (!mask.strided_queries()) return lane_numbers<L>();
  T places[width_of<L>];
  for (int i = 0; i < width_of<L>; ++i) places[i] = T(mask.at(c + i) - mask.at(c));
  return load<L>(places);
}

// Maps x to 2^x, for x <= 127; 0 below -126.5, where results would be subnormal. A polynomial around the nearest
// integer: minimax for the relative error (Remez exchange at 40 digits, then rounded), with 2^0 = 1 exactly. Error: at
// most 1.2 units in the last place. NaN is kept. `count` independent vectors hide the latency of the polynomial.
template <int count, class L>
inline __attribute__((always_inline)) void powers_of_two(L (&x)[count]) {
  constexpr float round = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer, which is then in the low bits
  constexpr float coefficients[] = {0.0001534581215874f,
                                    0.001339993120947f,
                                    0.009618488956523f,
                                    0.05550328776998f,
                                    0.2402264689064f,
                                    0.6931472057373f,
                                    1.0f};
  using Words = typename LanesOf<std::uint32_t, width_of<L>>::type;  // unsigned, because the bits of a NaN overflow
  L scale[count], power[count];
  unrolled<count>([&](int i) __attribute__((always_inline)) {
    x[i] = larger(splat<L>(-127.0f), x[i]);
    const L shifted = x[i] + round;
    x[i] -= shifted - round;
    scale[i] = bits_as<L>((bits_as<Words>(shifted) << 23) + bits_as<std::uint32_t>(1.0f));
    power[i] = splat<L>(coefficients[0]);
  });
  unrolled<6>([&](int term) __attribute__((always_inline)) {
    unrolled<count>([&](int i) __attribute__((always_inline)) {
      power[i] = fused<L>(power[i], x[i], coefficients[term + 1]);
    });
  });
  unrolled<count>([&](int i) __attribute__((always_inline)) { x[i] = power[i] * scale[i]; });
}

constexpr double log2_e = 1.44269504088896340736;

// Independent SIMD vectors of scores that become weights; more would exceed the registers.
constexpr int weights_at_once = ABH_LANE_BYTES == 64 || by_element ? 4 : 2;

// delta of positions [first, end). Summed over channels in the order of multiply(): if one weight is 1, out is this
// value, delta equals the product bitwise, and d_score is exactly 0.
template <class T>
void sum_delta(T* delta_c, Rows<const T> d_out_ck, Rows<const T> out_ck, Index first, Index end, Index K) {
  using L = Wide<T>;
  prefetch(d_out_ck, first, end, K);
  prefetch(out_ck, first, end, K);
  for (Index c = first; c < end; c += lane_width<T>) {
    const LaneRows<T> d_out(d_out_ck, c, end), out(out_ck, c, end);
    L sum = splat<L>(T(0));
    Index k = 0;
    for (; k + 4 <= K; k += 4) {
      L x[4], y[4];
      d_out.four_channels(x, k);
      out.four_channels(y, k);
      for (int i = 0; i < 4; ++i) sum = fused<L>(x[i], y[i], sum);
    }
    for (; k < K; ++k) sum = fused<L>(d_out.channel(k), out.channel(k), sum);
    T delta[lane_width<T>];
    store<L>(delta, sum);
    for (Index i = 0; i < min_of(lane_width<T>, end - c); ++i) delta_c[c + i] = delta[i];
  }
}

// Number of tasks over which the key blocks of a head are distributed, each with its own d_query. More than one only if
// there are few heads; depends on the shape alone.
inline Index pieces_of(Index heads, Index blocks) {
  return min_of(blocks_of(enough_tasks, max_of(heads, Index{1})), blocks);  // also valid for an empty batch
}

}  // namespace

}  // namespace abh
