#pragma once

// Backward pass of attention over tiles of scores.

#include "cpu/attention_tiles.hpp"

namespace abh {

namespace {

// Scratch memory of one task of the backward pass, in numbers.
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

// One block of keys with all queries that attend to it: computes d_key and d_value of the block, and adds its part to
// d_query_ck (C rows of padded(K) channels). The blocks are distributed over `pieces` arrays d_query; in each, the
// first block that a tile of queries attends to initialises the tile. Members are inlined, as in ForwardBlock.
template <bool biased, class T>
class BackwardBlock {
  using L = Wide<T>;
  static constexpr Index width = lane_width<T>;

 public:
  __attribute__((always_inline))
  BackwardBlock(const AttentionBackward<T>& a, Index b, Index n, Index first_key, Index block, Rows<T> d_query_ck,
                Index pieces, const T* delta_c, const T* bias_x, T* scratch)
      : in_(a.in),
        first_key_(first_key),
        block_(block),
        pieces_(pieces),
        K_(a.in.K),
        padded_K_(padded<T>(a.in.K)),
        keys_(min_of(block, a.in.S - first_key)),
        mask_(a.in.mask.of_head(n)),
        delta_c_(delta_c),
        bias_x_(bias_x),
        lse_c_(a.lse_bnc + (b * a.in.N + n) * a.in.C),
        scale_(score_scale<T>(a.in)),
        query_ck_(head_rows(a.in.query_bch, a.in.query_stride, b, n, a.in.C, a.in.N, K_)),
        d_out_ck_(head_rows(a.d_out_bch, 0, b, n, a.in.C, a.in.N, K_)),
        key_sk_(head_rows(a.in.key_bsh, a.in.key_stride, b, n, a.in.S, a.in.N, K_).from(first_key)),
        value_sk_(head_rows(a.in.value_bsh, a.in.value_stride, b, n, a.in.S, a.in.N, K_).from(first_key)),
        d_query_ck_(d_query_ck),
        d_key_sk_(head_rows(a.d_key_bsh, a.d_key_stride, b, n, a.in.S, a.in.N, K_).from(first_key)),
        d_value_sk_(head_rows(a.d_value_bsh, a.d_value_stride, b, n, a.in.S, a.in.N, K_).from(first_key)),
        key_gks_(scratch),
        value_gks_(key_gks_ + K_ * block),
        padded_sk_(value_gks_ + K_ * block),
        padded_tile_ck_(padded_sk_ + 3 * padded_K_ * block),
        padded_key_sk_(padded_rows<T>(key_sk_, keys_, K_, a.in.C > tile, padded_sk_)),
        d_key_sum_sk_(K_ == padded_K_ ? d_key_sk_ : Rows<T>{padded_sk_ + padded_K_ * block, padded_K_}),
        d_value_sum_sk_(K_ == padded_K_ ? d_value_sk_ : Rows<T>{padded_sk_ + 2 * padded_K_ * block, padded_K_}),
        d_query_of_block_ck_{padded_tile_ck_ + 2 * padded_K_ * tile, padded_K_},
        d_key_total_sk_(d_query_of_block_ck_.from(tile)),
        d_value_total_sk_(d_key_total_sk_.from(block)) {
    transpose_groups<T>(key_gks_, key_sk_, keys_, K_);
    transpose_groups<T>(value_gks_, value_sk_, keys_, K_);
    for (Index s = 0; s < padded<T>(keys_); ++s) {
      const bool seen = s < keys_ && !(mask_.mask_bs && mask_.mask_bs[b * in_.S + first_key + s] == 0);
      hide_s_[s] = seen ? T(0) : T(-infinity);
    }
  }

  __attribute__((always_inline)) void run() {
    for (Index key = 0; key < keys_; key += tile) {
      const Index tile_keys = min_of(tile, keys_ - key);
      if (!seers_of(key, tile_keys).empty()) continue;
      clear_rows<T>(d_key_sum_sk_.from(key), tile_keys, padded_K_);
      clear_rows<T>(d_value_sum_sk_.from(key), tile_keys, padded_K_);
    }
    const Stretch seers = seers_of(0, keys_);
    for (Index first = seers.begin / tile * tile; !seers.empty() && first < seers.end; first += tile)
      meet_queries(first);
    finish();
  }

 private:
  // A tile of queries and a tile of keys of the block.
  struct Meeting {
    Index first_query, queries;
    Rows<const T> query_ck, d_out_ck;
    Rows<T> d_query_ck;
    Index begin;           // first key of the block to which a query attends, rounded down to a tile
    Index key, tile_keys;  // position of the tile within the block
    bool diagonal;         // true: first query and first key have the same position
    Stretch seers;         // queries of the sequence that attend to one of the keys
  };

  __attribute__((always_inline)) Stretch seers_of(Index first, Index count) const {
    return mask_.queries_of({first_key_ + first, first_key_ + first + count}, in_.C);
  }

  // One tile of queries with all tiles of keys.
  __attribute__((always_inline)) void meet_queries(Index first_query) {
    const Index queries = min_of(tile, in_.C - first_query);
    const Stretch seen = mask_.keys_of({first_query, first_query + queries}, in_.S);
    const bool begins_d_query = first_key_ < (seen.begin / block_ + pieces_) * block_;
    const Index begin = larger(seen.begin - first_key_, Index(0)) / tile * tile;
    Meeting m{
        .first_query = first_query,
        .queries = queries,
        .query_ck = padded_rows<T>(query_ck_.from(first_query), queries, K_, in_.C > tile, padded_tile_ck_),
        .d_out_ck = padded_rows<T>(d_out_ck_.from(first_query), queries, K_, false, padded_tile_ck_ + padded_K_ * tile),
        .d_query_ck = begins_d_query ? d_query_ck_.from(first_query) : d_query_of_block_ck_,
        .begin = begin,
        .key = begin,
        .tile_keys = 0,
        .diagonal = false,
        .seers = {}};
    const Index end = min_of(seen.end - first_key_, keys_);
    for (; m.key < end; m.key += tile) {
      m.tile_keys = min_of(tile, keys_ - m.key);
      m.diagonal =
          mask_.causal && first_key_ + m.key - first_query - mask_.query_offset == 0 && !mask_.strided_queries();
      m.seers = seers_of(m.key, m.tile_keys);
      for (Index g = 0; g < m.tile_keys; g += group<T>) meet_group(m, g);
      add_d_query(m);
      end_section(m);
    }
    if (!begins_d_query) add_rows(d_query_ck_.from(first_query), d_query_of_block_ck_, queries, padded_K_);
  }

  // A group of keys of a tile, from index g.
  __attribute__((always_inline)) void meet_group(const Meeting& m, Index g) {
    const Index count = min_of(group<T>, m.tile_keys - g);
    // On the diagonal, queries before the first key of the group are skipped.
    const Index first = m.diagonal ? g : 0;
    multiply_pairs(m, g, count, weight_cs_, group<T>, m.query_ck, key_gks_);
    multiply_pairs(m, g, count, d_score_cs_ + g, tile, m.d_out_ck, value_gks_);
    for (Index half = 0; half < count; half += width) weigh(m, g + half, half, first);
    Product<T> by_key{.out = d_value_sum_sk_.from(m.key + g),  // (attention.10)
                      .a = {weight_cs_ + first * group<T>, 1, group<T>},
                      .b = m.d_out_ck.from(first),
                      .rows = count,
                      .lanes = padded_K_,
                      .steps = m.queries - first,
                      .add = !(m.first_query <= m.seers.begin || m.first_query % section == 0),
                      .which = m.diagonal ? Steps::from_diagonal : Steps::all};
    multiply<T>(by_key);
    by_key.out = d_key_sum_sk_.from(m.key + g);  // (attention.9)
    by_key.a = {d_score_cs_ + first * tile + g, 1, tile};
    by_key.b = m.query_ck.from(first);
    multiply<T>(by_key);
  }

  // Products of all queries with a group of keys (y_gks: keys or values of the block). On the diagonal, the first
  // queries do not attend to the keys of the group's second vector.
  __attribute__((always_inline)) void multiply_pairs(const Meeting& m, Index g, Index count, T* out, Index out_stride,
                                                     const Rows<const T>& x_ck, const T* y_gks) {
    const auto multiply_queries = [&](Index from, Index to, Index lanes) {
      multiply<T>({.out = {out + from * out_stride, out_stride},
                   .a = {x_ck[from], x_ck.stride, 1},
                   .b = {y_gks + (m.key + g) * K_, group<T>},
                   .rows = to - from,
                   .lanes = lanes,
                   .steps = K_});
    };
    const Index first = m.diagonal ? g : 0, both = m.diagonal ? min_of(m.queries, g + width) : 0;
    multiply_queries(first, both, width);
    multiply_queries(both, m.queries, count > width ? group<T> : width);
  }

  // Turns scores into weights and their gradients, for the SIMD vector of keys that begins at `place` of the tile and
  // at `half` of the group. In order, the queries attend to none of these keys, then to some, to all, to some, and to
  // none.
  __attribute__((always_inline)) void weigh(const Meeting& m, Index place, Index half, Index first) {
    const Index first_of_vector = first_key_ + m.key + place;
    // The first query of the tile that attends to key i of the vector, and the index of query c in the vector.
    const auto query_at = [&](Index i) { return mask_.first_at(first_of_vector + i) - m.first_query; };
    const auto place_of = [&](Index c) { return mask_.at(m.first_query + c) - first_of_vector; };
    const Index at = query_at(0);
    // A few queries, from index c.
    const auto weigh_queries = [&]<int count>(Index c, const L& hide) {
      L weight[count];
      unrolled<count>([&](int i) {
        L score = load<L>(weight_cs_ + (c + i) * group<T> + half);
        if constexpr (biased) score += load<L>(bias_x_ + at - (c + i));  // (attention.11)
        weight[i] = (fused<L>(score, scale_, hide) - lse_c_[m.first_query + c + i]) * T(log2_e);
      });
      powers_of_two(weight);  // (attention.5)
      unrolled<count>([&](int i) {
        T* d_score_s = d_score_cs_ + (c + i) * tile + place;
        const L d_score = weight[i] * (load<L>(d_score_s) - delta_c_[m.first_query + c + i]);  // (attention.7)
        store<L>(weight_cs_ + (c + i) * group<T> + half, weight[i]);
        store<L>(d_score_s, d_score * scale_);  // factor common to d_query and d_key
      });
    };
    const L hide = load<L>(hide_s_ + m.key + place), hidden = splat<L>(T(-infinity));
    const auto weigh_edge = [&](Index c) {  // a query that attends to some keys of the vector
      L hide_more = hide;
      if (mask_.causal) hide_more = lane_numbers<L>() > splat<L>(T(place_of(c))) ? hidden : hide_more;
      if (mask_.window > 0) hide_more = lane_numbers<L>() > splat<L>(T(c - at - mask_.window)) ? hide_more : hidden;
      weigh_queries.template operator()<1>(c, hide_more);
    };
    const auto until = [&](bool edge, Index c, Index otherwise) { return edge ? min_of(m.queries, c) : otherwise; };
    const Index none = until(mask_.causal, at, first);
    const Index some = until(mask_.causal, query_at(width - 1) + 1, first);
    const Index all = until(mask_.window > 0, at + mask_.window, m.queries);
    const Index some_again = until(mask_.window > 0, at + mask_.window + width - 1, m.queries);
    const auto clear = [&](Index c) {
      store<L>(weight_cs_ + c * group<T> + half, splat<L>(T(0)));
      store<L>(d_score_cs_ + c * tile + place, splat<L>(T(0)));
    };
    Index c = first;
    for (; c < none; ++c) clear(c);
    for (; c < min_of(some, some_again); ++c) weigh_edge(c);
    for (; c + weights_at_once <= all; c += weights_at_once) {
      weigh_queries.template operator()<weights_at_once>(c, hide);
    }
    for (; c < all; ++c) weigh_queries.template operator()<1>(c, hide);
    for (; c < some_again; ++c) weigh_edge(c);
    for (; c < m.queries; ++c) clear(c);
  }

  __attribute__((always_inline)) void add_d_query(const Meeting& m) {
    const Index step = m.diagonal ? group<T> : m.queries;
    for (Index c = 0; c < m.queries; c += step) {
      const Index some = min_of(step, m.queries - c);
      const bool to_diagonal = m.diagonal && c + some <= m.tile_keys;
      multiply<T>({.out = m.d_query_ck.from(c),  // (attention.8)
                   .a = {d_score_cs_ + c * tile, tile, 1},
                   .b = padded_key_sk_.from(m.key),
                   .rows = some,
                   .lanes = padded_K_,
                   .steps = to_diagonal ? c + some : m.tile_keys,
                   .add = m.key > m.begin,
                   .which = to_diagonal ? Steps::to_diagonal : Steps::all});
    }
  }

  // Adds the sums of a section of queries to those of earlier sections.
  __attribute__((always_inline)) void end_section(const Meeting& m) {
    const Index end_query = m.first_query + tile;
    if (end_query % section != 0 || end_query >= m.seers.end) return;
    const auto add_section = end_query - section <= m.seers.begin ? copy_back<T> : add_rows<T>;
    add_section(d_key_total_sk_.from(m.key), d_key_sum_sk_.from(m.key), m.tile_keys, padded_K_);
    add_section(d_value_total_sk_.from(m.key), d_value_sum_sk_.from(m.key), m.tile_keys, padded_K_);
  }

  __attribute__((always_inline)) void finish() {
    for (Index key = 0; key < keys_; key += tile) {
      const Index tile_keys = min_of(tile, keys_ - key);
      if (!in_sections(seers_of(key, tile_keys))) continue;
      add_rows(d_key_sum_sk_.from(key), d_key_total_sk_.from(key), tile_keys, padded_K_);
      add_rows(d_value_sum_sk_.from(key), d_value_total_sk_.from(key), tile_keys, padded_K_);
    }
    copy_back<T>(d_key_sk_, d_key_sum_sk_, keys_, K_);
    copy_back<T>(d_value_sk_, d_value_sum_sk_, keys_, K_);
  }

  const AttentionInputs<T>& in_;
  const Index first_key_, block_, pieces_, K_, padded_K_, keys_;
  const AttentionMask<T> mask_;
  const T *const delta_c_, *const bias_x_;
  const Accum<T>* const lse_c_;
  const T scale_;
  const Rows<const T> query_ck_, d_out_ck_, key_sk_, value_sk_;
  const Rows<T> d_query_ck_, d_key_sk_, d_value_sk_;
  T *const key_gks_, *const value_gks_, *const padded_sk_, *const padded_tile_ck_;
  const Rows<const T> padded_key_sk_;
  const Rows<T> d_key_sum_sk_, d_value_sum_sk_, d_query_of_block_ck_, d_key_total_sk_, d_value_total_sk_;
  alignas(64) T hide_s_[most_rows];           // added to the scores of a key: 0, or -infinity if masked
  alignas(64) T weight_cs_[tile * group<T>];  // query tile x group of keys
  alignas(64) T d_score_cs_[tile * tile];     // query tile x key tile
};

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
  const bool in_place = pieces == 1 && in.K == padded_K;  // d_query needs neither partial sums nor padding
  typename Device::Scope scratch(device.workspace);
  T* delta_bnc = scratch.template take<T>(heads * in.C);
  T* d_query_pbnck = in_place ? nullptr : scratch.template take<T>(pieces * heads * in.C * padded_K);  // p: piece
  T* per_worker = scratch.template take<T>(device.threads.count() * backward_scratch<T>(in.K, in.C, block));
  const BiasTable<T> bias(scratch, in);
  const auto rows = [&](auto* first, Index stride, Index head) {
    return head_rows(first, stride, head / in.N, head % in.N, in.C, in.N, in.K);
  };
  const auto seen_by_tile = [&](Index t, Index head) {
    return in.mask.of_head(head % in.N).keys_of({t * tile, min_of((t + 1) * tile, in.C)}, in.S);
  };

  parallel_for(device, in.B * tiles, [&](Index task, Index) {
    const Index t = task % tiles;
    const Index first = t * tile, end = min_of(first + tile, in.C);
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
      BackwardBlock<biased, T>(a, head / in.N, head % in.N, t * block, block, d_query_ck, pieces,
                               delta_bnc + head * in.C, bias.of_head(head % in.N),
                               per_worker + worker * backward_scratch<T>(in.K, in.C, block))
          .run();
    }
  });
  if (in_place) return;

  parallel_for(device, heads * tiles, [&](Index task, Index) {
    const Index head = task / tiles;
    const Index t = task % tiles;
    const Rows<T> d_query_ck = rows(a.d_query_bch, a.d_query_stride, head);
    // The blocks for this tile are consecutive, and their pieces are consecutive modulo `pieces`.
    const Stretch seen = seen_by_tile(t, head);
    const Index met = seen.empty() ? 0 : blocks_of(seen.end, block) - seen.begin / block;
    const Index first_piece = met == 0 ? 0 : seen.begin / block % pieces, pieces_here = min_of(pieces, met);
    for (Index c = t * tile; c < min_of((t + 1) * tile, in.C); ++c) {
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
