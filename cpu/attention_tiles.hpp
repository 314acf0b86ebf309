#pragma once

// Attention in tiles: for float, over the lanes of this instruction set.

#include "cpu/attention_products.hpp"
#include "cpu/math.hpp"
#include "layers/attention.hpp"

namespace abh {

namespace {

constexpr double infinity = __builtin_inf();

// The rows of head n of sequence b: row c holds K channels.
template <class T>
Rows<T> head_rows(T* first, Index stride, Index b, Index n, Index C, Index N, Index K) {
  const Index step = stride_or(stride, N * K);
  return {first + b * C * step + n * K, step};
}

template <class T>
T score_scale(Index K) {
  return T(1) / square_root(T(K));
}

// Queries or keys in a tile: a tile of scores, keys and values stays in the first two caches.
constexpr Index tile = 64;

// Tasks that a pass should have at least, where there is so much to share out.
constexpr Index enough_tasks = 16;

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
    unrolled<count>([&](int i) __attribute__((always_inline)) { power[i] = power[i] * x[i] + coefficients[term + 1]; });
  });
  unrolled<count>([&](int i) __attribute__((always_inline)) { x[i] = power[i] * scale[i]; });
}

constexpr double log2_e = 1.44269504088896340736;

// Vectors of scores that become weights side by side; more would not fit the registers.
constexpr int weights_at_once = ABH_LANE_BYTES == 64 || by_element ? 4 : 2;

// Numbers of scratch memory that one task of the forward pass needs.
template <class T>
Index forward_scratch(Index K, Index block) {
  return (K + padded<T>(K)) * block + padded<T>(K) * tile;
}

// One block of queries against every key it sees. State per query: max of the scores before their factor 1/sqrt(K),
// sum, and K outputs not yet divided by the sum.
template <class T>
void forward_block(const AttentionForward<T>& a, Index b, Index n, Index first_query, Index block, T* scratch) {
  using L = Wide<T>;
  constexpr Index width = lane_width<T>;
  const Index K = a.K, padded_K = padded<T>(K);
  const auto rows = [&](auto* first, Index stride) { return head_rows(first, stride, b, n, a.C, a.N, K); };
  const Rows<const T> query_ck = rows(a.query_bch, a.query_stride).from(first_query);
  const Rows<const T> key_ck = rows(a.key_bch, a.key_stride);
  const Rows<const T> value_ck = rows(a.value_bch, a.value_stride);
  const Rows<T> out_ck = rows(a.out_bch, 0).from(first_query);
  const Index queries = lesser(block, a.C - first_query);
  const T scale = score_scale<T>(K);

  T* query_gkc = scratch;
  T* padded_ck = query_gkc + K * block;
  const Rows<T> sum_ck = K == padded_K ? out_ck : Rows<T>{padded_ck + padded_K * tile, padded_K};
  alignas(64) T max_c[most_rows], sum_c[most_rows], shrink_c[group<T>];
  alignas(64) T weight_cc[tile * group<T>];  // a key tile x a group of queries: scores, then weights
  transpose_groups<T>(query_gkc, query_ck, queries, K);
  for (Index c = 0; c < padded<T>(queries); ++c) {
    max_c[c] = T(-infinity);
    sum_c[c] = T(0);
  }

  // Each group of queries fetches a share of the next tile of keys and values.
  const Index next_rows = blocks_of(tile * group<T>, block);
  const Index end = a.causal ? first_query + queries : a.C;
  for (Index first_key = 0; first_key < end; first_key += tile) {
    const Index tile_keys = lesser(tile, a.C - first_key);
    const Token* mask_c = a.mask_bc ? a.mask_bc + b * a.C + first_key : nullptr;
    const Rows<const T> tile_value_ck = padded_rows<T>(value_ck.from(first_key), tile_keys, K, a.C > tile, padded_ck);
    for (Index g = 0; g < queries; g += group<T>) {
      const Index group_queries = lesser(group<T>, queries - g);
      const Index next = first_key + tile + g / group<T> * next_rows, next_end = lesser(next + next_rows, end);
      prefetch(key_ck, next, next_end, K);
      prefetch(value_ck, next, next_end, K);
      const Index before = first_query + g - first_key;  // keys of the tile before the first query of the group
      if (a.causal && before < 0) continue;
      const bool diagonal = a.causal && before < tile;
      // On the diagonal, keys behind the last query of the group are left out, and the last keys are those of the
      // second vector of queries only.
      const Index keys = diagonal ? before + group_queries : tile_keys;
      const Index keys_of_both = diagonal ? lesser(keys, before + width) : keys;
      const auto multiply_keys = [&](Index from, Index to, Index lane, Index lanes) {
        multiply<T>({.out = {weight_cc + from * group<T> + lane, group<T>},
                     .a = {key_ck[first_key + from], key_ck.stride, 1},
                     .b = {query_gkc + g * K + lane, group<T>},
                     .rows = to - from,
                     .lanes = lanes,
                     .steps = K});
      };
      multiply_keys(0, keys_of_both, 0, group_queries > width ? group<T> : width);  // (attention.1), without its factor
      multiply_keys(keys_of_both, keys, width, width);

      for (Index half = 0; half < group_queries; half += width) {
        T* weight_c = weight_cc + half;
        const Index seen = diagonal ? lesser(keys, before + half + width) : keys;
        const L hidden = splat<L>(T(-infinity));
        for (Index key = 0; mask_c && key < seen; ++key) {
          if (mask_c[key] == 0) store<L>(weight_c + key * group<T>, hidden);
        }
        for (Index key = before + half; diagonal && key < seen; ++key) {
          const L score = load<L>(weight_c + key * group<T>);
          store<L>(weight_c + key * group<T>, splat<L>(T(key - before - half)) > lane_numbers<L>() ? hidden : score);
        }
        // The merge of what was met before with this tile: both are referred to the larger maximum.
        const L old_max = load<L>(max_c + g + half);
        L max = old_max;
        for (Index key = 0; key < seen; ++key) max = larger(max, load<L>(weight_c + key * group<T>));
        // While a query has seen nothing its maximum is -infinity; 0 in its place keeps -inf - (-inf) out.
        const L base = max == splat<L>(T(-infinity)) ? splat<L>(T(0)) : max;
        const T to_exponent = scale * T(log2_e);  // (attention.1), its factor, and to the base 2
        L shrink[] = {(old_max - base) * to_exponent};
        powers_of_two(shrink);
        L sum = splat<L>(T(0));
        const auto weigh = [&]<int count>(Index key) {
          L power[count];
          unrolled<count>([&](int i) { power[i] = (load<L>(weight_c + (key + i) * group<T>) - base) * to_exponent; });
          powers_of_two(power);
          unrolled<count>([&](int i) {
            sum += power[i];
            store<L>(weight_c + (key + i) * group<T>, power[i]);
          });
        };
        Index key = 0;
        for (; key + weights_at_once <= seen; key += weights_at_once) {
          weigh.template operator()<weights_at_once>(key);
        }
        for (; key < seen; ++key) weigh.template operator()<1>(key);
        for (; key < keys; ++key) store<L>(weight_c + key * group<T>, splat<L>(T(0)));
        store<L>(max_c + g + half, max);
        store<L>(sum_c + g + half, load<L>(sum_c + g + half) * shrink[0] + sum);  // (attention.2)
        store<L>(shrink_c + half, shrink[0]);
      }
      // The outputs so far move to the new maximum as well; most maxima come early and do not change any more.
      for (Index c = 0; first_key > 0 && c < group_queries; ++c) {
        if (shrink_c[c] == T(1)) continue;
        T* sum_k = sum_ck[g + c];
        for (Index k = 0; k < padded_K; k += width) store<L>(sum_k + k, load<L>(sum_k + k) * shrink_c[c]);
      }
      multiply<T>({.out = sum_ck.from(g),
                   .a = {weight_cc, 1, group<T>},
                   .b = tile_value_ck,
                   .rows = group_queries,
                   .lanes = padded_K,
                   .steps = keys,
                   .add = first_key > 0,
                   .which = diagonal ? Steps::to_diagonal : Steps::all});
    }
  }

  Accum<T>* lse_c = a.lse_bnc + (b * a.N + n) * a.C + first_query;
  for (Index c = 0; c < queries; c += width) {
    const L sum = load<L>(sum_c + c), none = splat<L>(T(0));
    store<L>(sum_c + c, sum == none ? none : T(1) / sum);
    store<L>(max_c + c,
             sum == none ? splat<L>(T(infinity)) : load<L>(max_c + c) * scale + natural_log<L>(sum));  // (attention.4)
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
Index backward_scratch(Index K, Index block) {
  return (2 * K + 3 * padded<T>(K)) * block + 2 * padded<T>(K) * tile;
}

// One block of keys against every query that sees it: finishes d_key and d_value of the block, adds its part to
// d_query_ck (C rows of padded(K) channels), or begins it if it is the first block to do so.
template <class T>
void backward_block(const AttentionBackward<T>& a, Index b, Index n, Index first_key, Index block, Rows<T> d_query_ck,
                    bool begins_d_query, const T* delta_c, T* scratch) {
  using L = Wide<T>;
  constexpr Index width = lane_width<T>;
  const Index K = a.K, padded_K = padded<T>(K);
  const auto rows = [&](auto* first, Index stride) { return head_rows(first, stride, b, n, a.C, a.N, K); };
  const Rows<const T> query_ck = rows(a.query_bch, a.query_stride);
  const Rows<const T> d_out_ck = rows(a.d_out_bch, 0);
  const Rows<const T> key_ck = rows(a.key_bch, a.key_stride).from(first_key);
  const Rows<const T> value_ck = rows(a.value_bch, a.value_stride).from(first_key);
  const Rows<T> d_key_ck = rows(a.d_key_bch, a.d_key_stride).from(first_key);
  const Rows<T> d_value_ck = rows(a.d_value_bch, a.d_value_stride).from(first_key);
  const Accum<T>* lse_c = a.lse_bnc + (b * a.N + n) * a.C;
  const Index keys = lesser(block, a.C - first_key);
  const T scale = score_scale<T>(K);

  T* key_gkc = scratch;
  T* value_gkc = key_gkc + K * block;
  T* padded_ck = value_gkc + K * block;
  T* padded_tile_ck = padded_ck + 3 * padded_K * block;
  const bool several_tiles = a.C > tile;
  const Rows<const T> padded_key_ck = padded_rows<T>(key_ck, keys, K, several_tiles, padded_ck);
  const Rows<T> d_key_sum_ck = K == padded_K ? d_key_ck : Rows<T>{padded_ck + padded_K * block, padded_K};
  const Rows<T> d_value_sum_ck = K == padded_K ? d_value_ck : Rows<T>{padded_ck + 2 * padded_K * block, padded_K};
  alignas(64) T hide_c[most_rows];           // added to the scores of a key: 0, or -infinity for a weight of 0
  alignas(64) T weight_cc[tile * group<T>];  // a query tile x a group of keys
  alignas(64) T d_score_cc[tile * tile];     // a query tile x a key tile
  transpose_groups<T>(key_gkc, key_ck, keys, K);
  transpose_groups<T>(value_gkc, value_ck, keys, K);
  for (Index c = 0; c < padded<T>(keys); ++c) {
    const bool seen = c < keys && !(a.mask_bc && a.mask_bc[b * a.C + first_key + c] == 0);
    hide_c[c] = seen ? T(0) : T(-infinity);
  }

  for (Index first_query = a.causal ? first_key : 0; first_query < a.C; first_query += tile) {
    const Index queries = lesser(tile, a.C - first_query);
    const Rows<const T> tile_query_ck =
        padded_rows<T>(query_ck.from(first_query), queries, K, several_tiles, padded_tile_ck);
    const Rows<const T> tile_d_out_ck =
        padded_rows<T>(d_out_ck.from(first_query), queries, K, false, padded_tile_ck + padded_K * tile);
    const Index end = a.causal ? lesser(keys, first_query - first_key + tile) : keys;
    for (Index key = 0; key < end; key += tile) {
      const bool diagonal = a.causal && first_query == first_key + key;
      const bool begins_d_key = first_query == (a.causal ? first_key + key : 0);
      const Index tile_keys = lesser(tile, keys - key);
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
        multiply_pairs(weight_cc, group<T>, tile_query_ck, key_gkc + (key + g) * K);
        multiply_pairs(d_score_cc + g, tile, tile_d_out_ck, value_gkc + (key + g) * K);

        for (Index half = 0; half < group_keys; half += width) {
          // A few queries from c on.
          const auto weigh = [&]<int count>(Index c, const L& hide) {
            L weight[count];
            unrolled<count>([&](int i) {
              const L score = load<L>(weight_cc + (c + i) * group<T> + half) * scale + hide;
              weight[i] = (score - lse_c[first_query + c + i]) * T(log2_e);
            });
            powers_of_two(weight);  // (attention.5)
            unrolled<count>([&](int i) {
              T* d_score_c = d_score_cc + (c + i) * tile + g + half;
              const L d_score = weight[i] * (load<L>(d_score_c) - delta_c[first_query + c + i]);  // (attention.7)
              store<L>(weight_cc + (c + i) * group<T> + half, weight[i]);
              store<L>(d_score_c, d_score * scale);  // the factor of d_query and d_key, once for both
            });
          };
          const L hide = load<L>(hide_c + key + g + half);
          Index c = first;
          if (diagonal) {
            for (; c < lesser(queries, g + half); ++c) {
              store<L>(weight_cc + c * group<T> + half, splat<L>(T(0)));
              store<L>(d_score_cc + c * tile + g + half, splat<L>(T(0)));
            }
            for (; c < lesser(queries, g + half + width); ++c) {
              weigh.template operator()<1>(
                  c, lane_numbers<L>() > splat<L>(T(c - g - half)) ? splat<L>(T(-infinity)) : hide);
            }
          }
          for (; c + weights_at_once <= queries; c += weights_at_once) {
            weigh.template operator()<weights_at_once>(c, hide);
          }
          for (; c < queries; ++c) weigh.template operator()<1>(c, hide);
        }
        Product<T> by_key{.out = d_value_sum_ck.from(key + g),  // (attention.10)
                          .a = {weight_cc + first * group<T>, 1, group<T>},
                          .b = tile_d_out_ck.from(first),
                          .rows = group_keys,
                          .lanes = padded_K,
                          .steps = queries - first,
                          .add = !begins_d_key,
                          .which = diagonal ? Steps::from_diagonal : Steps::all};
        multiply<T>(by_key);
        by_key.out = d_key_sum_ck.from(key + g);  // (attention.9)
        by_key.a = {d_score_cc + first * tile + g, 1, tile};
        by_key.b = tile_query_ck.from(first);
        multiply<T>(by_key);
      }
      const Index step = diagonal ? group<T> : queries;
      for (Index c = 0; c < queries; c += step) {  // (attention.8)
        const Index some = lesser(step, queries - c);
        multiply<T>({.out = d_query_ck.from(first_query + c),
                     .a = {d_score_cc + c * tile, tile, 1},
                     .b = padded_key_ck.from(key),
                     .rows = some,
                     .lanes = padded_K,
                     .steps = diagonal ? c + some : tile_keys,
                     .add = !begins_d_query || key > 0,
                     .which = diagonal ? Steps::to_diagonal : Steps::all});
      }
    }
  }
  copy_back<T>(d_key_ck, d_key_sum_ck, keys, K);
  copy_back<T>(d_value_ck, d_value_sum_ck, keys, K);
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
      for (int i = 0; i < 4; ++i) sum += x[i] * y[i];
    }
    for (; k < K; ++k) sum += d_out.channel(k) * out.channel(k);
    T delta[lane_width<T>];
    store<L>(delta, sum);
    for (Index i = 0; i < lesser(lane_width<T>, end - c); ++i) delta_c[c + i] = delta[i];
  }
}

// A head's blocks of keys are dealt out to several tasks, each with its own d_query, only when there are few heads:
// that depends on the shape alone, too.
inline Index pieces_of(Index heads, Index blocks) { return lesser(blocks_of(enough_tasks, heads), blocks); }

template <class Device, class T>
void backward_in_tiles(Device& device, const AttentionBackward<T>& a) {
  const Index heads = a.B * a.N;
  const Index tiles = blocks_of(a.C, tile);
  if (heads == 0 || tiles == 0) return;
  const Index block = block_rows(heads, a.C, a.K);
  const Index blocks = blocks_of(a.C, block);
  const Index pieces = pieces_of(heads, blocks);
  const Index padded_K = padded<T>(a.K);
  const bool in_place = pieces == 1 && a.K == padded_K;  // d_query needs neither a sum nor padding
  typename Device::Scope scratch(device.workspace);
  T* delta_bnc = scratch.template take<T>(heads * a.C);
  T* d_query_pbnck = in_place ? nullptr : scratch.template take<T>(pieces * heads * a.C * padded_K);  // p: piece
  T* per_worker = scratch.template take<T>(device.threads.count() * backward_scratch<T>(a.K, block));
  const auto rows = [&](auto* first, Index stride, Index head) {
    return head_rows(first, stride, head / a.N, head % a.N, a.C, a.N, a.K);
  };

  parallel_for(device, a.B * tiles, [&](Index task, Index) {
    const Index first = task % tiles * tile;
    for (Index head = task / tiles * a.N; head < (task / tiles + 1) * a.N; ++head) {
      sum_delta<T>(delta_bnc + head * a.C, rows(a.d_out_bch, 0, head), rows(a.out_bch, 0, head), first,
                   lesser(first + tile, a.C), a.K);  // (attention.6)
    }
  });

  parallel_for(device, pieces * heads, [&](Index task, Index worker) {
    const Index head = task / pieces;
    const Index piece = task % pieces;
    const Rows<T> d_query_ck = in_place ? rows(a.d_query_bch, a.d_query_stride, head)
                                        : Rows<T>{d_query_pbnck + (piece * heads + head) * a.C * padded_K, padded_K};
    for (Index t = piece; t < blocks; t += pieces) {
      backward_block<T>(a, head / a.N, head % a.N, t * block, block, d_query_ck, t == piece, delta_bnc + head * a.C,
                        per_worker + worker * backward_scratch<T>(a.K, block));
    }
  });
  if (in_place) return;

  parallel_for(device, heads * tiles, [&](Index task, Index) {
    const Index head = task / tiles;
    const Index t = task % tiles;
    const Rows<T> d_query_ck = rows(a.d_query_bch, a.d_query_stride, head);
    // A causal piece begins with the queries of its first block.
    const Index pieces_here = a.causal ? lesser(pieces, t * tile / block + 1) : pieces;
    for (Index c = t * tile; c < lesser((t + 1) * tile, a.C); ++c) {
      for_lanes<T>(a.K, [&]<class L>(Index k) {
        L sum = splat<L>(T(0));
        for (Index piece = 0; piece < pieces_here; ++piece) {
          sum += load<L>(d_query_pbnck + ((piece * heads + head) * a.C + c) * padded_K + k);
        }
        store<L>(d_query_ck[c] + k, sum);
      });
    }
  });
}

}  // namespace

}  // namespace abh
