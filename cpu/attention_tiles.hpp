#pragma once

// Attention in tiles: for float, over the lanes of this instruction set.

#include "cpu/attention_products.hpp"
#include "cpu/math.hpp"
#include "layers/attention.hpp"

namespace abh {

namespace {

constexpr double infinity = __builtin_inf();

// The rows of head n of sequence b, of which each has `count`: a row holds K channels.
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

// The factor of the scores.
template <class T, class Arguments>
T score_scale(const Arguments& a) {
  return a.scale > 0 ? T(a.scale) : T(1) / square_root(T(a.K));
}

// Queries or keys in a tile: a tile of scores, keys and values stays in the first two caches.
constexpr Index tile = 64;

// Keys or queries whose tiles are summed one after the other. Sections are summed apart: where sums have grown,
// rounding what joins them always the same way would be a drift (docs/layers/attention.md, Long sums).
constexpr Index section = 16 * tile;

// Whether an interval of keys or queries is met in more than one section.
inline bool in_sections(const Stretch& met) { return !met.empty() && met.begin / section < (met.end - 1) / section; }

// Tasks that a pass should have at least, where there is so much to share out.
constexpr Index enough_tasks = 16;

// The bias of every head at the distances that tiles ask for, x = c + offset - s with its sign: a lane vector of
// queries, or of keys, finds its biases side by side. They are divided by the factor of the scores, which they join
// before it. The tables of scratch memory are mirrored, for queries (x grows with c) as well as for keys (-x with s).
template <class T>
struct BiasTable {
  T* first = nullptr;
  Index middle = 0;  // of a table, where the distance is 0

  // Room for the tables. Two that see each other are within reach of the sight's own table, and in a tile nobody is
  // further than another tile from them.
  template <class Scope>
  BiasTable(Scope& scratch, const AttentionInputs<T>& in) {
    const Sight<T>& sight = in.sight;
    if (!sight.distance_bias_nc) return;
    const Index farthest = larger(in.C - 1 + sight.offset, in.S - 1 - sight.offset);
    middle = lesser(sight.distances, larger(farthest, Index(0)) + 1) + 2 * tile;
    first = scratch.template take<T>(in.N * (2 * middle + 1));
  }
  const T* of_head(Index n) const { return first ? first + n * (2 * middle + 1) + middle : nullptr; }

  void fill(const AttentionInputs<T>& in, Index n) const {
    const Sight<T>& sight = in.sight;
    const T scale = score_scale<T>(in);
    T* bias_x = first + n * (2 * middle + 1) + middle;
    ABH_INDEPENDENT_TURNS
    for (Index x = 0; x <= middle; ++x) {
      const bool there = x < sight.distances;
      bias_x[x] = bias_x[-x] = there ? sight.distance_bias_nc[n * sight.distances + x] / scale : T(0);
    }
  }
};

// Rows of a block, whole tiles: queries that meet one tile of keys after the other (forward), or keys that meet tiles
// of queries (backward). The more, the less often those tiles come from afar; but the block itself should stay in the
// second cache, blocks are shared out, and one twice as long as the sequence would be memory for nothing. It depends on
// the shape alone.
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

// How many keys further on than query c the next ones stand, a lane each.
template <class L, class T>
L places_behind(const Sight<T>& sight, Index c) {
  if (!sight.is_stair()) return lane_numbers<L>();
  T places[width_of<L>];
  for (int i = 0; i < width_of<L>; ++i) places[i] = T(sight.at(c + i) - sight.at(c));
  return load<L>(places);
}

// x to 2^x, for x <= 127; 0 below -126.5, where results would be subnormal. Around the nearest integer a polynomial:
// minimax for the relative error (Remez exchange at 40 digits, then rounded), with 2^0 = 1 exactly. Error: at most 1.2
// units of the last place. NaN stays. The long chain of every polynomial waits for itself: `count` of them side by side
// keep the machine busy.
template <int count, class L>
inline __attribute__((always_inline)) void powers_of_two(L (&x)[count]) {
  constexpr float round = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer and leaves that in the low bits
  constexpr float coefficients[] = {0.0001534581215874f,
                                    0.001339993120947f,
                                    0.009618488956523f,
                                    0.05550328776998f,
                                    0.2402264689064f,
                                    0.6931472057373f,
                                    1.0f};
  using Words = typename LanesOf<std::uint32_t, width_of<L>>::type;  // unsigned, as the bits of a NaN overflow
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

// Vectors of scores that become weights side by side; more would not fit the registers.
constexpr int weights_at_once = ABH_LANE_BYTES == 64 || by_element ? 4 : 2;

// Numbers of scratch memory that one task of the forward pass needs.
template <class T>
Index forward_scratch(Index K, Index S, Index block) {
  return (K + padded<T>(K)) * block + padded<T>(K) * (tile + (S > section ? 2 * block : 0));
}

// One block of queries against every key it sees. State per query: max of the scores before their factor, sum, and K
// outputs not yet divided by the sum; the same of the sections that are done with, sums and outputs as pairs. bias_x:
// of the head, by distance.
template <bool biased, class T>
void forward_block(const AttentionForward<T>& a, Index b, Index n, Index first_query, Index block, const T* bias_x,
                   T* scratch) {
  const auto& in = a.in;
  using L = Wide<T>;
  constexpr Index width = lane_width<T>;
  const Index K = in.K, padded_K = padded<T>(K);
  const Sight<T> sight = in.sight.of_head(n);
  const auto rows = [&](auto* first, Index stride, Index count) {
    return head_rows(first, stride, b, n, count, in.N, K);
  };
  const Rows<const T> query_ck = rows(in.query_bch, in.query_stride, in.C).from(first_query);
  const Rows<const T> key_sk = rows(in.key_bsh, in.key_stride, in.S);
  const Rows<const T> value_sk = rows(in.value_bsh, in.value_stride, in.S);
  const Rows<T> out_ck = rows(a.out_bch, 0, in.C).from(first_query);
  const Index queries = lesser(block, in.C - first_query);
  const T scale = score_scale<T>(in);
  const T to_exponent = scale * T(log2_e);  // (attention.1), its factor, and to the base 2

  T* query_gkc = scratch;
  T* padded_sk = query_gkc + K * block;
  const Rows<T> padded_sum_ck{padded_sk + padded_K * tile, padded_K};
  const Rows<T> sum_ck = K == padded_K ? out_ck : padded_sum_ck;
  const Rows<T> total_ck = padded_sum_ck.from(block), total_low_ck = total_ck.from(block);
  alignas(64) T max_c[most_rows], sum_c[most_rows], shrink_c[group<T>];
  alignas(64) T total_max_c[most_rows], total_sum_c[most_rows], total_sum_low_c[most_rows];
  alignas(64) T weight_sc[tile * group<T>];  // a key tile x a group of queries: scores, then weights
  transpose_groups<T>(query_gkc, query_ck, queries, K);
  for (Index c = 0; c < padded<T>(queries); ++c) {
    max_c[c] = T(-infinity);
    sum_c[c] = T(0);
  }
  const auto seen_by = [&](Index first, Index count) {
    return sight.keys_of({first_query + first, first_query + first + count}, in.S);
  };
  for (Index g = 0; g < queries; g += group<T>) {
    const Index group_queries = lesser(group<T>, queries - g);
    if (seen_by(g, group_queries).empty()) clear_rows<T>(sum_ck.from(g), group_queries, padded_K);
  }

  const Stretch of_block = seen_by(0, queries);
  if (in_sections(of_block)) {
    for (Index c = 0; c < padded<T>(queries); ++c) {
      total_max_c[c] = T(-infinity);
      total_sum_c[c] = total_sum_low_c[c] = T(0);
    }
    clear_rows<T>(total_ck, queries, padded_K);
    clear_rows<T>(total_low_ck, queries, padded_K);
  }
  // A section's max, sum and outputs merge into those of the sections before, and begin anew. One function, so that it
  // rounds alike wherever it stands.
  const auto merge_section = [&](Index g, Index group_queries) __attribute__((noinline)) {
    alignas(64) T shrink_total_c[group<T>], shrink_here_c[group<T>];
    for (Index half = 0; half < group_queries; half += width) {
      const Index c = g + half;
      const L max_before = load<L>(total_max_c + c), max_here = load<L>(max_c + c), max = larger(max_before, max_here);
      const L base = max == splat<L>(T(-infinity)) ? splat<L>(T(0)) : max;
      L shrink[] = {(max_before - base) * to_exponent, (max_here - base) * to_exponent};
      powers_of_two(shrink);
      L sum = load<L>(total_sum_c + c), low = load<L>(total_sum_low_c + c);
      add_to_scaled_pair<L>(sum, low, shrink[0], load<L>(sum_c + c) * shrink[1]);
      store<L>(total_max_c + c, max);
      store<L>(total_sum_c + c, sum);
      store<L>(total_sum_low_c + c, low);
      store<L>(max_c + c, splat<L>(T(-infinity)));
      store<L>(sum_c + c, splat<L>(T(0)));
      store<L>(shrink_total_c + half, shrink[0]);
      store<L>(shrink_here_c + half, shrink[1]);
    }
    for (Index c = 0; c < group_queries; ++c) {
      T *sum_k = sum_ck[g + c], *total_k = total_ck[g + c], *low_k = total_low_ck[g + c];
      for (Index k = 0; k < padded_K; k += width) {
        L total = load<L>(total_k + k), low = load<L>(low_k + k);
        add_to_scaled_pair<L>(total, low, splat<L>(shrink_total_c[c]), load<L>(sum_k + k) * shrink_here_c[c]);
        store<L>(total_k + k, total);
        store<L>(low_k + k, low);
      }
    }
  };

  // Each group of queries fetches a share of the next tile of keys and values.
  const Index next_rows = blocks_of(tile * group<T>, block);
  for (Index first_key = of_block.begin / tile * tile; first_key < of_block.end; first_key += tile) {
    const Index tile_keys = lesser(tile, in.S - first_key);
    const Token* mask_s = sight.mask_bs ? sight.mask_bs + b * in.S + first_key : nullptr;
    const Rows<const T> tile_value_sk = padded_rows<T>(value_sk.from(first_key), tile_keys, K, in.C > tile, padded_sk);
    for (Index g = 0; g < queries; g += group<T>) {
      const Index group_queries = lesser(group<T>, queries - g);
      const Index next = first_key + tile + g / group<T> * next_rows, next_end = lesser(next + next_rows, of_block.end);
      prefetch(key_sk, next, next_end, K);
      prefetch(value_sk, next, next_end, K);
      // A query of the group sees the keys [from, keys) of the tile; before the first query stand `before`.
      const Stretch of_group = seen_by(g, group_queries);
      const Index from = larger(of_group.begin - first_key, Index(0)),
                  keys = lesser(of_group.end - first_key, tile_keys);
      if (from >= keys) continue;
      // The key of the tile at which query c of the group stands, and that behind a vector that begins with query c.
      const auto at_query = [&](Index c) { return sight.at(first_query + g + c) - first_key; };
      const auto behind_vector = [&](Index c) { return at_query(c + width - 1) + 1; };
      const Index before = at_query(0);
      const bool diagonal = sight.causal && before + 1 < keys;
      // On the diagonal the last keys are those of the second vector of queries only.
      const Index keys_of_both = diagonal ? larger(from, lesser(keys, behind_vector(0))) : keys;
      const auto multiply_keys = [&](Index begin, Index end, Index lane, Index lanes) {
        multiply<T>({.out = {weight_sc + begin * group<T> + lane, group<T>},
                     .a = {key_sk[first_key + begin], key_sk.stride, 1},
                     .b = {query_gkc + g * K + lane, group<T>},
                     .rows = end - begin,
                     .lanes = lanes,
                     .steps = K});
      };
      // (attention.1), without its factor
      multiply_keys(from, keys_of_both, 0, group_queries > width ? group<T> : width);
      multiply_keys(keys_of_both, keys, width, width);

      for (Index half = 0; half < group_queries; half += width) {
        T* weight_s = weight_sc + half;
        const Index at = at_query(half);  // where the first query of the vector stands
        const Index seen = diagonal ? lesser(keys, behind_vector(half)) : keys;
        const L hidden = splat<L>(T(-infinity));
        for (Index key = from; biased && key < seen; ++key) {
          const L score = load<L>(weight_s + key * group<T>);
          store<L>(weight_s + key * group<T>, score + load<L>(bias_x + at - key));  // (attention.11)
        }
        for (Index key = from; mask_s && key < seen; ++key) {
          if (mask_s[key] == 0) store<L>(weight_s + key * group<T>, hidden);
        }
        if (diagonal) {
          const L further = places_behind<L>(sight, first_query + g + half);  // where the others stand, from there
          for (Index key = larger(from, at); key < seen; ++key) {
            const L score = load<L>(weight_s + key * group<T>);
            store<L>(weight_s + key * group<T>, splat<L>(T(key - at)) > further ? hidden : score);
          }
        }
        for (Index key = from; sight.reach > 0 && key < lesser(seen, at + width - sight.reach); ++key) {
          const L score = load<L>(weight_s + key * group<T>);
          const L beyond = splat<L>(T(key - at + sight.reach));  // the first query that does not reach so far back
          store<L>(weight_s + key * group<T>, beyond > lane_numbers<L>() ? score : hidden);
        }
        // The merge of what was met before with this tile: both are referred to the larger maximum.
        const L old_max = load<L>(max_c + g + half);
        L max = old_max;
        for (Index key = from; key < seen; ++key) max = larger(max, load<L>(weight_s + key * group<T>));
        // While a query has seen nothing its maximum is -infinity; 0 in its place keeps -inf - (-inf) out.
        const L base = max == splat<L>(T(-infinity)) ? splat<L>(T(0)) : max;
        L shrink[] = {(old_max - base) * to_exponent};
        powers_of_two(shrink);
        L sum = splat<L>(T(0));
        const auto weigh = [&]<int count>(Index key) {
          L power[count];
          unrolled<count>([&](int i) { power[i] = (load<L>(weight_s + (key + i) * group<T>) - base) * to_exponent; });
          powers_of_two(power);
          unrolled<count>([&](int i) {
            sum += power[i];
            store<L>(weight_s + (key + i) * group<T>, power[i]);
          });
        };
        Index key = from;
        for (; key + weights_at_once <= seen; key += weights_at_once) {
          weigh.template operator()<weights_at_once>(key);
        }
        for (; key < seen; ++key) weigh.template operator()<1>(key);
        for (; key < keys; ++key) store<L>(weight_s + key * group<T>, splat<L>(T(0)));
        store<L>(max_c + g + half, max);
        store<L>(sum_c + g + half, fused<L>(load<L>(sum_c + g + half), shrink[0], sum));  // (attention.2)
        store<L>(shrink_c + half, shrink[0]);
      }
      // The outputs so far move to the new maximum as well; most maxima come early and do not change any more.
      const bool begins = first_key <= of_group.begin || first_key % section == 0;
      for (Index c = 0; !begins && c < group_queries; ++c) {
        if (shrink_c[c] == T(1)) continue;
        T* sum_k = sum_ck[g + c];
        for (Index k = 0; k < padded_K; k += width) store<L>(sum_k + k, load<L>(sum_k + k) * shrink_c[c]);
      }
      multiply<T>(
          {.out = sum_ck.from(g),
           .a = {weight_sc + from * group<T>, 1, group<T>},
           .b = tile_value_sk.from(from),
           .rows = group_queries,
           .lanes = padded_K,
           .steps = keys - from,
           .add = !begins,
           .which = diagonal && !sight.is_stair() && keys == before + group_queries ? Steps::to_diagonal : Steps::all});
      const Index end_key = first_key + tile;
      if (end_key % section == 0 && end_key < of_group.end) merge_section(g, group_queries);
    }
  }
  for (Index g = 0; g < queries; g += group<T>) {
    const Index group_queries = lesser(group<T>, queries - g);
    if (!in_sections(seen_by(g, group_queries))) continue;
    merge_section(g, group_queries);
    for (Index c = g; c < g + group_queries; ++c) {
      max_c[c] = total_max_c[c];
      sum_c[c] = total_sum_c[c] + total_sum_low_c[c];
      for (Index k = 0; k < padded_K; k += width) {
        store<L>(sum_ck[c] + k, load<L>(total_ck[c] + k) + load<L>(total_low_ck[c] + k));
      }
    }
  }

  Accum<T>* lse_c = a.lse_bnc + (b * in.N + n) * in.C + first_query;
  for (Index c = 0; c < queries; c += width) {
    const L sum = load<L>(sum_c + c), none = splat<L>(T(0));
    const L lse = fused<L>(load<L>(max_c + c), scale, natural_log<L>(sum));  // (attention.4)
    store<L>(sum_c + c, sum == none ? none : T(1) / sum);
    store<L>(max_c + c, sum == none ? splat<L>(T(infinity)) : lse);
  }
  for (Index c = 0; c < queries; ++c) {
    lse_c[c] = max_c[c];
    for_lanes<T>(K, [&]<class M>(Index k) {                        // sum_c holds 1 / sum by now
      store<M>(out_ck[c] + k, load<M>(sum_ck[c] + k) * sum_c[c]);  // (attention.3)
    });
  }
}

// Numbers of scratch memory that one task of the backward pass needs.
template <class T>
Index backward_scratch(Index K, Index C, Index block) {
  return (2 * K + 3 * padded<T>(K)) * block + padded<T>(K) * (3 * tile + (C > section ? 2 * block : 0));
}

template <class T>
void add_rows(Rows<T> to_ck, Rows<T> x_ck, Index count, Index K) {
  for (Index c = 0; c < count; ++c) {
    for_lanes<T>(K, [&]<class L>(Index k) { store<L>(to_ck[c] + k, load<L>(to_ck[c] + k) + load<L>(x_ck[c] + k)); });
  }
}

// One block of keys against every query that sees it: finishes d_key and d_value of the block, adds its part to
// d_query_ck (C rows of padded(K) channels). Blocks are dealt out to `pieces` d_query; the first of each that a tile of
// queries meets begins it.
template <bool biased, class T>
void backward_block(const AttentionBackward<T>& a, Index b, Index n, Index first_key, Index block, Rows<T> d_query_ck,
                    Index pieces, const T* delta_c, const T* bias_x, T* scratch) {
  const auto& in = a.in;
  using L = Wide<T>;
  constexpr Index width = lane_width<T>;
  const Index K = in.K, padded_K = padded<T>(K);
  const Sight<T> sight = in.sight.of_head(n);
  const auto rows = [&](auto* first, Index stride, Index count) {
    return head_rows(first, stride, b, n, count, in.N, K);
  };
  const Rows<const T> query_ck = rows(in.query_bch, in.query_stride, in.C);
  const Rows<const T> d_out_ck = rows(a.d_out_bch, 0, in.C);
  const Rows<const T> key_sk = rows(in.key_bsh, in.key_stride, in.S).from(first_key);
  const Rows<const T> value_sk = rows(in.value_bsh, in.value_stride, in.S).from(first_key);
  const Rows<T> d_key_sk = rows(a.d_key_bsh, a.d_key_stride, in.S).from(first_key);
  const Rows<T> d_value_sk = rows(a.d_value_bsh, a.d_value_stride, in.S).from(first_key);
  const Accum<T>* lse_c = a.lse_bnc + (b * in.N + n) * in.C;
  const Index keys = lesser(block, in.S - first_key);
  const T scale = score_scale<T>(in);

  T* key_gks = scratch;
  T* value_gks = key_gks + K * block;
  T* padded_sk = value_gks + K * block;
  T* padded_tile_ck = padded_sk + 3 * padded_K * block;
  const bool several_tiles = in.C > tile;
  const Rows<const T> padded_key_sk = padded_rows<T>(key_sk, keys, K, several_tiles, padded_sk);
  const Rows<T> d_key_sum_sk = K == padded_K ? d_key_sk : Rows<T>{padded_sk + padded_K * block, padded_K};
  const Rows<T> d_value_sum_sk = K == padded_K ? d_value_sk : Rows<T>{padded_sk + 2 * padded_K * block, padded_K};
  const Rows<T> d_query_of_block_ck{padded_tile_ck + 2 * padded_K * tile, padded_K};
  const Rows<T> d_key_total_sk = d_query_of_block_ck.from(tile), d_value_total_sk = d_key_total_sk.from(block);
  alignas(64) T hide_s[most_rows];           // added to the scores of a key: 0, or -infinity for a weight of 0
  alignas(64) T weight_cs[tile * group<T>];  // a query tile x a group of keys
  alignas(64) T d_score_cs[tile * tile];     // a query tile x a key tile
  transpose_groups<T>(key_gks, key_sk, keys, K);
  transpose_groups<T>(value_gks, value_sk, keys, K);
  for (Index s = 0; s < padded<T>(keys); ++s) {
    const bool seen = s < keys && !(sight.mask_bs && sight.mask_bs[b * in.S + first_key + s] == 0);
    hide_s[s] = seen ? T(0) : T(-infinity);
  }
  const auto seers_of = [&](Index first, Index count) {
    return sight.queries_of({first_key + first, first_key + first + count}, in.C);
  };
  for (Index key = 0; key < keys; key += tile) {
    const Index tile_keys = lesser(tile, keys - key);
    if (!seers_of(key, tile_keys).empty()) continue;
    clear_rows<T>(d_key_sum_sk.from(key), tile_keys, padded_K);
    clear_rows<T>(d_value_sum_sk.from(key), tile_keys, padded_K);
  }

  const Stretch seers = seers_of(0, keys);
  for (Index first_query = seers.begin / tile * tile; !seers.empty() && first_query < seers.end; first_query += tile) {
    const Index queries = lesser(tile, in.C - first_query);
    const Rows<const T> tile_query_ck =
        padded_rows<T>(query_ck.from(first_query), queries, K, several_tiles, padded_tile_ck);
    const Rows<const T> tile_d_out_ck =
        padded_rows<T>(d_out_ck.from(first_query), queries, K, false, padded_tile_ck + padded_K * tile);
    const Stretch seen = sight.keys_of({first_query, first_query + queries}, in.S);
    const bool begins_d_query = first_key < (seen.begin / block + pieces) * block;
    const Index begin = larger(seen.begin - first_key, Index(0)) / tile * tile;
    const Index end = lesser(seen.end - first_key, keys);
    const Rows<T> d_query_tile_ck = begins_d_query ? d_query_ck.from(first_query) : d_query_of_block_ck;
    for (Index key = begin; key < end; key += tile) {
      const Index tile_keys = lesser(tile, keys - key);
      const Index behind = first_key + key - first_query - sight.offset;  // where the first query stands, the first key
      const bool diagonal = sight.causal && behind == 0 && !sight.is_stair();
      const Stretch of_tile = seers_of(key, tile_keys);
      const bool begins_d_key = first_query <= of_tile.begin || first_query % section == 0;
      for (Index g = 0; g < tile_keys; g += group<T>) {
        const Index group_keys = lesser(group<T>, tile_keys - g);
        // On the diagonal, queries before the first key of the group are left out, and the next ones see no key of the
        // second vector.
        const Index first = diagonal ? g : 0;
        const Index both = diagonal ? lesser(queries, g + width) : 0;
        const auto multiply_pairs = [&](T* out, Index out_stride, Rows<const T> x_ck, const T* y_kc) {
          const auto multiply_queries = [&](Index from, Index to, Index lanes) {
            multiply<T>({.out = {out + from * out_stride, out_stride},
                         .a = {x_ck[from], x_ck.stride, 1},
                         .b = {y_kc, group<T>},
                         .rows = to - from,
                         .lanes = lanes,
                         .steps = K});
          };
          multiply_queries(first, both, width);
          multiply_queries(both, queries, group_keys > width ? group<T> : width);
        };
        multiply_pairs(weight_cs, group<T>, tile_query_ck, key_gks + (key + g) * K);
        multiply_pairs(d_score_cs + g, tile, tile_d_out_ck, value_gks + (key + g) * K);

        for (Index half = 0; half < group_keys; half += width) {
          const Index first_of_vector = first_key + key + g + half;
          // The first query of the tile that stands at key i of the vector, and where query c stands in the vector.
          const auto query_at = [&](Index i) { return sight.first_at(first_of_vector + i) - first_query; };
          const auto place_of = [&](Index c) { return sight.at(first_query + c) - first_of_vector; };
          const Index at = query_at(0);
          // A few queries from c on.
          const auto weigh = [&]<int count>(Index c, const L& hide) {
            L weight[count];
            unrolled<count>([&](int i) {
              L score = load<L>(weight_cs + (c + i) * group<T> + half);
              if constexpr (biased) score += load<L>(bias_x + at - (c + i));  // (attention.11)
              weight[i] = (fused<L>(score, scale, hide) - lse_c[first_query + c + i]) * T(log2_e);
            });
            powers_of_two(weight);  // (attention.5)
            unrolled<count>([&](int i) {
              T* d_score_s = d_score_cs + (c + i) * tile + g + half;
              const L d_score = weight[i] * (load<L>(d_score_s) - delta_c[first_query + c + i]);  // (attention.7)
              store<L>(weight_cs + (c + i) * group<T> + half, weight[i]);
              store<L>(d_score_s, d_score * scale);  // the factor of d_query and d_key, once for both
            });
          };
          const L hide = load<L>(hide_s + key + g + half), hidden = splat<L>(T(-infinity));
          const auto weigh_edge = [&](Index c) {  // a query that sees some of the vector's keys
            L hide_more = hide;
            if (sight.causal) hide_more = lane_numbers<L>() > splat<L>(T(place_of(c))) ? hidden : hide_more;
            if (sight.reach > 0) hide_more = lane_numbers<L>() > splat<L>(T(c - at - sight.reach)) ? hide_more : hidden;
            weigh.template operator()<1>(c, hide_more);
          };
          // Queries in their order: they see none of these keys, then some, all, again some, and again none.
          const auto until = [&](bool edge, Index c, Index otherwise) { return edge ? lesser(queries, c) : otherwise; };
          const Index none = until(sight.causal, at, first);
          const Index some = until(sight.causal, query_at(width - 1) + 1, first);
          const Index all = until(sight.reach > 0, at + sight.reach, queries);
          const Index some_again = until(sight.reach > 0, at + sight.reach + width - 1, queries);
          const auto clear = [&](Index c) {
            store<L>(weight_cs + c * group<T> + half, splat<L>(T(0)));
            store<L>(d_score_cs + c * tile + g + half, splat<L>(T(0)));
          };
          Index c = first;
          for (; c < none; ++c) clear(c);
          for (; c < lesser(some, some_again); ++c) weigh_edge(c);
          for (; c + weights_at_once <= all; c += weights_at_once) {
            weigh.template operator()<weights_at_once>(c, hide);
          }
          for (; c < all; ++c) weigh.template operator()<1>(c, hide);
          for (; c < some_again; ++c) weigh_edge(c);
          for (; c < queries; ++c) clear(c);
        }
        Product<T> by_key{.out = d_value_sum_sk.from(key + g),  // (attention.10)
                          .a = {weight_cs + first * group<T>, 1, group<T>},
                          .b = tile_d_out_ck.from(first),
                          .rows = group_keys,
                          .lanes = padded_K,
                          .steps = queries - first,
                          .add = !begins_d_key,
                          .which = diagonal ? Steps::from_diagonal : Steps::all};
        multiply<T>(by_key);
        by_key.out = d_key_sum_sk.from(key + g);  // (attention.9)
        by_key.a = {d_score_cs + first * tile + g, 1, tile};
        by_key.b = tile_query_ck.from(first);
        multiply<T>(by_key);
      }
      const Index step = diagonal ? group<T> : queries;
      for (Index c = 0; c < queries; c += step) {
        const Index some = lesser(step, queries - c);
        const bool to_diagonal = diagonal && c + some <= tile_keys;
        multiply<T>({.out = d_query_tile_ck.from(c),  // (attention.8)
                     .a = {d_score_cs + c * tile, tile, 1},
                     .b = padded_key_sk.from(key),
                     .rows = some,
                     .lanes = padded_K,
                     .steps = to_diagonal ? c + some : tile_keys,
                     .add = key > begin,
                     .which = to_diagonal ? Steps::to_diagonal : Steps::all});
      }
      const Index end_query = first_query + tile;
      if (end_query % section == 0 && end_query < of_tile.end) {
        const auto add_section = end_query - section <= of_tile.begin ? copy_back<T> : add_rows<T>;
        add_section(d_key_total_sk.from(key), d_key_sum_sk.from(key), tile_keys, padded_K);
        add_section(d_value_total_sk.from(key), d_value_sum_sk.from(key), tile_keys, padded_K);
      }
    }
    if (!begins_d_query) add_rows(d_query_ck.from(first_query), d_query_of_block_ck, queries, padded_K);
  }
  for (Index key = 0; key < keys; key += tile) {
    const Index tile_keys = lesser(tile, keys - key);
    if (!in_sections(seers_of(key, tile_keys))) continue;
    add_rows(d_key_sum_sk.from(key), d_key_total_sk.from(key), tile_keys, padded_K);
    add_rows(d_value_sum_sk.from(key), d_value_total_sk.from(key), tile_keys, padded_K);
  }
  copy_back<T>(d_key_sk, d_key_sum_sk, keys, K);
  copy_back<T>(d_value_sk, d_value_sum_sk, keys, K);
}

// delta of the positions [first, end). Summed channel by channel, as multiply() sums the products with the values:
// where one weight is 1, out is that value, delta is that product to the last bit, and d_score is exactly 0.
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
    for (Index i = 0; i < lesser(lane_width<T>, end - c); ++i) delta_c[c + i] = delta[i];
  }
}

// A head's blocks of keys are dealt out to several tasks, each with its own d_query, only when there are few heads:
// that depends on the shape alone, too.
inline Index pieces_of(Index heads, Index blocks) { return lesser(blocks_of(enough_tasks, heads), blocks); }

template <bool biased, class Device, class T>
void backward_in_tiles(Device& device, const AttentionBackward<T>& a) {
  const auto& in = a.in;
  const Index heads = in.B * in.N;
  const Index tiles = blocks_of(in.C, tile);
  if (heads == 0) return;
  const Index block = block_rows(heads, in.S, in.K);
  const Index blocks = blocks_of(in.S, block);
  const Index pieces = pieces_of(heads, blocks);
  const Index padded_K = padded<T>(in.K);
  const bool in_place = pieces == 1 && in.K == padded_K;  // d_query needs neither a sum nor padding
  typename Device::Scope scratch(device.workspace);
  T* delta_bnc = scratch.template take<T>(heads * in.C);
  T* d_query_pbnck = in_place ? nullptr : scratch.template take<T>(pieces * heads * in.C * padded_K);  // p: piece
  T* per_worker = scratch.template take<T>(device.threads.count() * backward_scratch<T>(in.K, in.C, block));
  const BiasTable<T> bias(scratch, in);
  const auto rows = [&](auto* first, Index stride, Index head) {
    return head_rows(first, stride, head / in.N, head % in.N, in.C, in.N, in.K);
  };
  const auto seen_by_tile = [&](Index t, Index head) {
    return in.sight.of_head(head % in.N).keys_of({t * tile, lesser((t + 1) * tile, in.C)}, in.S);
  };

  parallel_for(device, in.B * tiles, [&](Index task, Index) {
    const Index t = task % tiles;
    const Index first = t * tile, end = lesser(first + tile, in.C);
    for (Index head = task / tiles * in.N; head < (task / tiles + 1) * in.N; ++head) {
      sum_delta<T>(delta_bnc + head * in.C, rows(a.d_out_bch, 0, head), rows(a.out_bch, 0, head),  // (attention.6)
                   first, end, in.K);
      if (in_place && seen_by_tile(t, head).empty()) {
        clear_rows<T>(rows(a.d_query_bch, a.d_query_stride, head).from(first), end - first, in.K);
      }
    }
  });
  if constexpr (biased) parallel_for(device, in.N, [&](Index n, Index) { bias.fill(in, n); });

  parallel_for(device, pieces * heads, [&](Index task, Index worker) {
    const Index head = task / pieces;
    const Index piece = task % pieces;
    const Rows<T> d_query_ck = in_place ? rows(a.d_query_bch, a.d_query_stride, head)
                                        : Rows<T>{d_query_pbnck + (piece * heads + head) * in.C * padded_K, padded_K};
    for (Index t = piece; t < blocks; t += pieces) {
      backward_block<biased, T>(a, head / in.N, head % in.N, t * block, block, d_query_ck, pieces,
                                delta_bnc + head * in.C, bias.of_head(head % in.N),
                                per_worker + worker * backward_scratch<T>(in.K, in.C, block));
    }
  });
  if (in_place) return;

  parallel_for(device, heads * tiles, [&](Index task, Index) {
    const Index head = task / tiles;
    const Index t = task % tiles;
    const Rows<T> d_query_ck = rows(a.d_query_bch, a.d_query_stride, head);
    // The blocks that the tile has met lie one after the other, and so do their pieces, in a circle.
    const Stretch seen = seen_by_tile(t, head);
    const Index met = seen.empty() ? 0 : blocks_of(seen.end, block) - seen.begin / block;
    const Index first_piece = met == 0 ? 0 : seen.begin / block % pieces, pieces_here = lesser(pieces, met);
    for (Index c = t * tile; c < lesser((t + 1) * tile, in.C); ++c) {
      for_lanes<T>(in.K, [&]<class L>(Index k) {
        L sum = splat<L>(T(0));
        for (Index i = 0; i < pieces_here; ++i) {
          const Index piece = first_piece + i < pieces ? first_piece + i : first_piece + i - pieces;
          sum += load<L>(d_query_pbnck + ((piece * heads + head) * in.C + c) * padded_K + k);
        }
        store<L>(d_query_ck[c] + k, sum);
      });
    }
  });
}

}  // namespace

}  // namespace abh
