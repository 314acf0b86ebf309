#pragma once

// Forward pass of attention over tiles of scores.

#include "cpu/attention_tiles.hpp"

namespace abh {

namespace {

// Scratch memory of one task of the forward pass, in numbers.
template <class T>
Index forward_scratch(Index K, Index S, Index block) {
  return (K + padded<T>(K)) * block + padded<T>(K) * (tile + (S > section ? 2 * block : 0));
}

// One block of queries with all keys to which they attend. State per query: maximum of the unscaled scores, sum, and K
// outputs not yet divided by the sum; also those of completed sections, with sums and outputs as compensated pairs.
// bias_x: bias of the head by distance. Members are inlined, so the compiler keeps scalars in registers and state
// arrays on the stack.
template <bool biased, class T>
class ForwardBlock {
  using L = Wide<T>;
  static constexpr Index width = lane_width<T>;

 public:
  __attribute__((always_inline)) ForwardBlock(const AttentionForward<T>& a, Index b, Index n, Index first_query,
                                              Index block, const T* bias_x, T* scratch)
      : in_(a.in),
        b_(b),
        first_query_(first_query),
        K_(a.in.K),
        padded_K_(padded<T>(a.in.K)),
        queries_(min_of(block, a.in.C - first_query)),
        // Each group of queries prefetches a part of the next tile of keys and values.
        next_rows_(blocks_of(tile * group<T>, block)),
        mask_(a.in.mask.of_head(n)),
        bias_x_(bias_x),
        scale_(score_scale<T>(a.in)),
        to_exponent_(scale_ * T(log2_e)),  // factor of (attention.1), for powers of 2
        query_ck_(head_rows(a.in.query_bch, a.in.query_stride, b, n, a.in.C, a.in.N, K_).from(first_query)),
        key_sk_(head_rows(a.in.key_bsh, a.in.key_stride, b, n, a.in.S, a.in.N, K_)),
        value_sk_(head_rows(a.in.value_bsh, a.in.value_stride, b, n, a.in.S, a.in.N, K_)),
        out_ck_(head_rows(a.out_bch, 0, b, n, a.in.C, a.in.N, K_).from(first_query)),
        lse_c_(a.lse_bnc + (b * a.in.N + n) * a.in.C + first_query),
        query_gkc_(scratch),
        padded_sk_(scratch + K_ * block),
        sum_ck_(K_ == padded_K_ ? out_ck_ : Rows<T>{padded_sk_ + padded_K_ * tile, padded_K_}),
        total_ck_{padded_sk_ + padded_K_ * (tile + block), padded_K_},
        total_low_ck_(total_ck_.from(block)),
        seen_(seen_by(0, queries_)) {}

  __attribute__((always_inline)) void run() {
    begin();
    for (Index first_key = seen_.begin / tile * tile; first_key < seen_.end; first_key += tile) meet_keys(first_key);
    finish();
  }

 private:
  // A group of queries, and the keys of a tile to which at least one of them attends.
  struct Meeting {
    Index first_key, g, queries;  // first key of the tile; first query of the group in the block, and their number
    Stretch seen;                 // keys of the sequence
    Index from, keys;             // begin and end within the tile
    Index at_first;               // index in the tile of the key at the first query's position
    bool diagonal;                // true: some queries precede some keys (causal mask)
  };

  __attribute__((always_inline)) Stretch seen_by(Index first, Index count) const {
    return mask_.keys_of({first_query_ + first, first_query_ + first + count}, in_.S);
  }
  // Index in the tile of the key at the position of query c, and the end for a SIMD vector that begins with query c.
  __attribute__((always_inline)) Index at_query(const Meeting& m, Index c) const {
    return mask_.at(first_query_ + m.g + c) - m.first_key;
  }
  __attribute__((always_inline)) Index behind_vector(const Meeting& m, Index c) const {
    return at_query(m, c + width - 1) + 1;
  }

  __attribute__((always_inline)) void begin() {
    transpose_groups<T>(query_gkc_, query_ck_, queries_, K_);
    for (Index c = 0; c < padded<T>(queries_); ++c) {
      max_c_[c] = T(-infinity);
      sum_c_[c] = T(0);
    }
    for (Index g = 0; g < queries_; g += group<T>) {
      const Index count = min_of(group<T>, queries_ - g);
      if (seen_by(g, count).empty()) clear_rows<T>(sum_ck_.from(g), count, padded_K_);
    }
    if (!in_sections(seen_)) return;
    for (Index c = 0; c < padded<T>(queries_); ++c) {
      total_max_c_[c] = T(-infinity);
      total_sum_c_[c] = total_sum_low_c_[c] = T(0);
    }
    clear_rows<T>(total_ck_, queries_, padded_K_);
    clear_rows<T>(total_low_ck_, queries_, padded_K_);
  }

  // Every group of queries with one tile of keys.
  __attribute__((always_inline)) void meet_keys(Index first_key) {
    const Index tile_keys = min_of(tile, in_.S - first_key);
    const Token* mask_s = mask_.mask_bs ? mask_.mask_bs + b_ * in_.S + first_key : nullptr;
    const Rows<const T> tile_value_sk =
        padded_rows<T>(value_sk_.from(first_key), tile_keys, K_, in_.C > tile, padded_sk_);
    for (Index g = 0; g < queries_; g += group<T>) {
      const Index next = first_key + tile + g / group<T> * next_rows_, next_end = min_of(next + next_rows_, seen_.end);
      prefetch(key_sk_, next, next_end, K_);
      prefetch(value_sk_, next, next_end, K_);
      Meeting m{.first_key = first_key,
                .g = g,
                .queries = min_of(group<T>, queries_ - g),
                .seen = {},
                .from = 0,
                .keys = 0,
                .at_first = 0,
                .diagonal = false};
      m.seen = seen_by(g, m.queries);
      m.from = larger(m.seen.begin - first_key, Index(0));
      m.keys = min_of(m.seen.end - first_key, tile_keys);
      if (m.from >= m.keys) continue;
      m.at_first = at_query(m, 0);
      m.diagonal = mask_.causal && m.at_first + 1 < m.keys;
      score(m);
      for (Index half = 0; half < m.queries; half += width) {
        const Index seen = m.diagonal ? min_of(m.keys, behind_vector(m, half)) : m.keys;
        join_bias(m, half, seen);
        hide(m, half, seen, mask_s);
        weigh(m, half, seen);
      }
      add_values(m, tile_value_sk);
      const Index end_key = first_key + tile;
      if (end_key % section == 0 && end_key < m.seen.end) merge_section(g, m.queries);
    }
  }

  // (attention.1), without its factor
  __attribute__((always_inline)) void score(const Meeting& m) {
    const auto multiply_keys = [&](Index begin, Index end, Index lane, Index lanes) {
      multiply<T>({.out = {weight_sc_ + begin * group<T> + lane, group<T>},
                   .a = {key_sk_[m.first_key + begin], key_sk_.stride, 1},
                   .b = {query_gkc_ + m.g * K_ + lane, group<T>},
                   .rows = end - begin,
                   .lanes = lanes,
                   .steps = K_});
    };
    // On the diagonal, only the second vector of queries attends to the last keys.
    const Index keys_of_both = m.diagonal ? larger(m.from, min_of(m.keys, behind_vector(m, 0))) : m.keys;
    multiply_keys(m.from, keys_of_both, 0, m.queries > width ? group<T> : width);
    multiply_keys(keys_of_both, m.keys, width, width);
  }

  // Adds the distance bias to the scores of the vector of queries that begins at `half`.
  __attribute__((always_inline)) void join_bias(const Meeting& m, Index half, Index seen) {
    T* score_s = weight_sc_ + half;
    const Index at = at_query(m, half);
    for (Index key = m.from; biased && key < seen; ++key) {
      const L score = load<L>(score_s + key * group<T>);
      store<L>(score_s + key * group<T>, score + load<L>(bias_x_ + at - key));  // (attention.11)
    }
  }

  // Sets scores of masked pairs to -infinity: padding, later keys, and keys beyond the window.
  __attribute__((always_inline)) void hide(const Meeting& m, Index half, Index seen, const Token* mask_s) {
    T* score_s = weight_sc_ + half;
    const Index at = at_query(m, half);  // position of the vector's first query
    const L hidden = splat<L>(T(-infinity));
    for (Index key = m.from; mask_s && key < seen; ++key) {
      if (mask_s[key] == 0) store<L>(score_s + key * group<T>, hidden);
    }
    if (m.diagonal) {
      const L further = places_behind<L>(mask_, first_query_ + m.g + half);  // relative positions of all queries
      for (Index key = larger(m.from, at); key < seen; ++key) {
        const L score = load<L>(score_s + key * group<T>);
        store<L>(score_s + key * group<T>, splat<L>(T(key - at)) > further ? hidden : score);
      }
    }
    for (Index key = m.from; mask_.window > 0 && key < min_of(seen, at + width - mask_.window); ++key) {
      const L score = load<L>(score_s + key * group<T>);
      const L beyond = splat<L>(T(key - at + mask_.window));  // the first query whose window excludes this key
      store<L>(score_s + key * group<T>, beyond > lane_numbers<L>() ? score : hidden);
    }
  }

  // Turns scores into weights, and merges the state of earlier tiles with that of this tile: both are rescaled to the
  // larger maximum.
  __attribute__((always_inline)) void weigh(const Meeting& m, Index half, Index seen) {
    T* weight_s = weight_sc_ + half;
    const L old_max = load<L>(max_c_ + m.g + half);
    L max = old_max;
    for (Index key = m.from; key < seen; ++key) max = larger(max, load<L>(weight_s + key * group<T>));
    // Before its first key a query has maximum -infinity; the base is then 0, because -inf - (-inf) is NaN.
    const L base = max == splat<L>(T(-infinity)) ? splat<L>(T(0)) : max;
    L shrink[] = {(old_max - base) * to_exponent_};
    powers_of_two(shrink);
    L sum = splat<L>(T(0));
    const auto weigh_keys = [&]<int count>(Index key) {
      L power[count];
      unrolled<count>([&](int i) { power[i] = (load<L>(weight_s + (key + i) * group<T>) - base) * to_exponent_; });
      powers_of_two(power);
      unrolled<count>([&](int i) {
        sum += power[i];
        store<L>(weight_s + (key + i) * group<T>, power[i]);
      });
    };
    Index key = m.from;
    for (; key + weights_at_once <= seen; key += weights_at_once) weigh_keys.template operator()<weights_at_once>(key);
    for (; key < seen; ++key) weigh_keys.template operator()<1>(key);
    for (; key < m.keys; ++key) store<L>(weight_s + key * group<T>, splat<L>(T(0)));
    store<L>(max_c_ + m.g + half, max);
    store<L>(sum_c_ + m.g + half, fused<L>(load<L>(sum_c_ + m.g + half), shrink[0], sum));  // (attention.2)
    store<L>(shrink_c_ + half, shrink[0]);
  }

  // Rescales the outputs so far to the new maximum and adds the weighted values. Most maxima do not change after the
  // first tiles.
  __attribute__((always_inline)) void add_values(const Meeting& m, const Rows<const T>& tile_value_sk) {
    const bool begins = m.first_key <= m.seen.begin || m.first_key % section == 0;
    for (Index c = 0; !begins && c < m.queries; ++c) {
      if (shrink_c_[c] == T(1)) continue;
      T* sum_k = sum_ck_[m.g + c];
      for (Index k = 0; k < padded_K_; k += width) store<L>(sum_k + k, load<L>(sum_k + k) * shrink_c_[c]);
    }
    const bool to_diagonal = m.diagonal && !mask_.strided_queries() && m.keys == m.at_first + m.queries;
    multiply<T>({.out = sum_ck_.from(m.g),
                 .a = {weight_sc_ + m.from * group<T>, 1, group<T>},
                 .b = tile_value_sk.from(m.from),
                 .rows = m.queries,
                 .lanes = padded_K_,
                 .steps = m.keys - m.from,
                 .add = !begins,
                 .which = to_diagonal ? Steps::to_diagonal : Steps::all});
  }

  // Merges maximum, sum and outputs of a section into those of earlier sections, and resets them. Not inlined, so that
  // rounding is the same at every call.
  __attribute__((noinline)) void merge_section(Index g, Index count) {
    alignas(64) T shrink_total_c[group<T>], shrink_here_c[group<T>];
    for (Index half = 0; half < count; half += width) {
      const Index c = g + half;
      const L max_before = load<L>(total_max_c_ + c), max_here = load<L>(max_c_ + c),
              max = larger(max_before, max_here);
      const L base = max == splat<L>(T(-infinity)) ? splat<L>(T(0)) : max;
      L shrink[] = {(max_before - base) * to_exponent_, (max_here - base) * to_exponent_};
      powers_of_two(shrink);
      L sum = load<L>(total_sum_c_ + c), low = load<L>(total_sum_low_c_ + c);
      add_compensated_scaled<L>(sum, low, shrink[0], load<L>(sum_c_ + c) * shrink[1]);
      store<L>(total_max_c_ + c, max);
      store<L>(total_sum_c_ + c, sum);
      store<L>(total_sum_low_c_ + c, low);
      store<L>(max_c_ + c, splat<L>(T(-infinity)));
      store<L>(sum_c_ + c, splat<L>(T(0)));
      store<L>(shrink_total_c + half, shrink[0]);
      store<L>(shrink_here_c + half, shrink[1]);
    }
    for (Index c = 0; c < count; ++c) {
      T *sum_k = sum_ck_[g + c], *total_k = total_ck_[g + c], *low_k = total_low_ck_[g + c];
      for (Index k = 0; k < padded_K_; k += width) {
        L total = load<L>(total_k + k), low = load<L>(low_k + k);
        add_compensated_scaled<L>(total, low, splat<L>(shrink_total_c[c]), load<L>(sum_k + k) * shrink_here_c[c]);
        store<L>(total_k + k, total);
        store<L>(low_k + k, low);
      }
    }
  }

  // Merges the sections and divides by the sums.
  __attribute__((always_inline)) void finish() {
    for (Index g = 0; g < queries_; g += group<T>) {
      const Index count = min_of(group<T>, queries_ - g);
      if (!in_sections(seen_by(g, count))) continue;
      merge_section(g, count);
      for (Index c = g; c < g + count; ++c) {
        max_c_[c] = total_max_c_[c];
        sum_c_[c] = total_sum_c_[c] + total_sum_low_c_[c];
        for (Index k = 0; k < padded_K_; k += width) {
          store<L>(sum_ck_[c] + k, load<L>(total_ck_[c] + k) + load<L>(total_low_ck_[c] + k));
        }
      }
    }
    for (Index c = 0; c < queries_; c += width) {
      const L sum = load<L>(sum_c_ + c), none = splat<L>(T(0));
      const L lse = fused<L>(load<L>(max_c_ + c), scale_, natural_log<L>(sum));  // (attention.4)
      store<L>(sum_c_ + c, sum == none ? none : T(1) / sum);
      store<L>(max_c_ + c, sum == none ? splat<L>(T(infinity)) : lse);
    }
    for (Index c = 0; c < queries_; ++c) {
      lse_c_[c] = max_c_[c];
      for_lanes<T>(K_, [&]<class M>(Index k) {                          // sum_c_ now holds 1 / sum
        store<M>(out_ck_[c] + k, load<M>(sum_ck_[c] + k) * sum_c_[c]);  // (attention.3)
      });
    }
  }

  const AttentionInputs<T>& in_;
  const Index b_, first_query_, K_, padded_K_, queries_, next_rows_;
  const AttentionMask<T> mask_;
  const T* const bias_x_;
  const T scale_, to_exponent_;
  const Rows<const T> query_ck_, key_sk_, value_sk_;
  const Rows<T> out_ck_;
  Accum<T>* const lse_c_;
  T *const query_gkc_, *const padded_sk_;
  const Rows<T> sum_ck_, total_ck_, total_low_ck_;
  const Stretch seen_;  // keys to which at least one query attends
  alignas(64) T max_c_[most_rows], sum_c_[most_rows], shrink_c_[group<T>];
  alignas(64) T total_max_c_[most_rows], total_sum_c_[most_rows], total_sum_low_c_[most_rows];
  alignas(64) T weight_sc_[tile * group<T>];  // key tile x group of queries: scores, then weights
};

}  // namespace

}  // namespace abh
