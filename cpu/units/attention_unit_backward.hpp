#pragma once

// Backward pass of attention on bf16 rows by a unit.

#include "cpu/units/attention_unit_products.hpp"

namespace abh {

namespace {

// A head, with the blocks of keys piece, piece + pieces, ...: computes d_key and d_value of these blocks, and their
// part of d_query.
template <class Tiles>
class UnitBackward {
  using L = Wide<float>;
  static constexpr Index width = lane_width<float>, rows = Tiles::rows, pairs_of_tile = tile / 2;

 public:
  // Keys per block: blocks of about the same size.
  static Index block_of(Index S) { return up_to(blocks_of(S, blocks_of(S, unit_keys)), rows); }
  static Index blocks(Index S) { return blocks_of(S, block_of(S)); }

  // Scratch memory of a worker: pairs; floats without d_query; floats of d_query.
  static Index words(Index K, Index C, Index S) {
    const Index steps = Tiles::steps_of(K), padded_K = up_to(K, Tiles::columns), block = block_of(S);
    return blocks_of(C, tile) * 2 * (tile * steps + padded_K * pairs_of_tile) + 2 * block * steps +
           padded_K * Tiles::steps_of(block) + Tiles::steps_of(block) * tile;
  }
  static Index numbers(Index K, Index C, Index S) {
    return 2 * up_to(C, tile) + 2 * block_of(S) * up_to(K, Tiles::columns);
  }
  static Index d_query_numbers(Index K, Index C) { return up_to(C, tile) * up_to(K, Tiles::columns); }

  UnitBackward(const AttentionBackward<bf16>& a, Index b, Index n, const float* bias_x, Pair* scratch, float* sums,
               float* d_query)
      : in_(a.in),
        C_(a.in.C),
        K_(a.in.K),
        padded_K_(up_to(K_, Tiles::columns)),
        steps_(Tiles::steps_of(K_)),
        block_(block_of(a.in.S)),
        mask_(a.in.mask.of_head(n)),
        mask_s_(mask_.mask_bs ? mask_.mask_bs + b * a.in.S : nullptr),
        bias_x_(bias_x),
        scale_(score_scale<float>(a.in)),
        key_sk_(head_rows(a.in.key_bsh, a.in.key_stride, b, n, a.in.S, a.in.N, K_)),
        value_sk_(head_rows(a.in.value_bsh, a.in.value_stride, b, n, a.in.S, a.in.N, K_)),
        d_key_sk_(head_rows(a.d_key_bsh, a.d_key_stride, b, n, a.in.S, a.in.N, K_)),
        d_value_sk_(head_rows(a.d_value_bsh, a.d_value_stride, b, n, a.in.S, a.in.N, K_)),
        tiles_(scratch),
        key_strips_(tiles_ + blocks_of(C_, tile) * of_tile()),
        value_strips_(key_strips_ + block_ * steps_),
        key_steps_(value_strips_ + block_ * steps_),
        d_score_pairs_(key_steps_ + padded_K_ * Tiles::steps_of(block_)),
        lse_c_(sums),
        delta_c_(lse_c_ + up_to(C_, tile)),
        d_key_sum_sk_{delta_c_ + up_to(C_, tile), padded_K_},
        d_value_sum_sk_(d_key_sum_sk_.from(block_)),
        d_query_ck_{d_query, padded_K_} {
    const Rows<const bf16> query_ck = head_rows(a.in.query_bch, a.in.query_stride, b, n, C_, a.in.N, K_);
    const Rows<const bf16> d_out_ck = head_rows(a.d_out_bch, 0, b, n, C_, a.in.N, K_);
    const Rows<const bf16> out_ck = head_rows(a.out_bch, 0, b, n, C_, a.in.N, K_);
    for (Index c = 0; c < C_; c += tile) {
      const Index queries = min_of(tile, C_ - c);
      const Tile to = tile_at(c);
      pack_columns<Tiles>(to.query_columns, query_ck.from(c), queries, K_);
      pack_columns<Tiles>(to.d_out_columns, d_out_ck.from(c), queries, K_);
      pack_steps<Tiles>(to.query_steps, query_ck.from(c), queries, K_);
      pack_steps<Tiles>(to.d_out_steps, d_out_ck.from(c), queries, K_);
    }
    const float* lse_c = a.lse_bnc + (b * a.in.N + n) * C_;
    for (Index c = 0; c < up_to(C_, tile); ++c) {  // past the last query: weights are 0
      lse_c_[c] = c < C_ ? lse_c[c] : float(infinity);
      RowSum<bf16> sum;
      for_terms<bf16>(c < C_ ? K_ : 0,
                      [&]<class M>(Index k) { sum.add_product(load<M>(d_out_ck[c] + k), load<M>(out_ck[c] + k)); });
      delta_c_[c] = sum.total();  // (attention.6)
    }
    clear_rows(d_query_ck_, up_to(C_, tile), padded_K_);
  }

  void run_block(Index first_key) {
    const Index keys = min_of(block_, in_.S - first_key);
    pack_left<Tiles>(key_strips_, key_sk_.from(first_key), keys, K_);
    pack_left<Tiles>(value_strips_, value_sk_.from(first_key), keys, K_);
    pack_steps<Tiles>(key_steps_, key_sk_.from(first_key), keys, K_);
    clear_rows(d_key_sum_sk_, keys, padded_K_);
    clear_rows(d_value_sum_sk_, keys, padded_K_);
    const Stretch seers = mask_.queries_of({first_key, first_key + keys}, C_);
    for (Index c = seers.begin / tile * tile; c < seers.end; c += tile) {
      for (Index s = 0; s < keys; s += rows) meet(c, first_key + s, s, min_of(rows, keys - s));
      add_d_query(c, first_key, keys);
    }
    for (Index s = 0; s < keys; ++s) {
      for_lanes<bf16>(K_, [&]<class M>(Index k) {
        store<M>(d_key_sk_[first_key + s] + k, load<M>(d_key_sum_sk_[s] + k) * scale_);
        store<M>(d_value_sk_[first_key + s] + k, load<M>(d_value_sum_sk_[s] + k));
      });
    }
  }

 private:
  // Packed queries and gradients of outputs, as columns and as steps of right factors.
  struct Tile {
    Pair *query_columns, *d_out_columns, *query_steps, *d_out_steps;
  };
  Index of_tile() const { return 2 * (tile * steps_ + padded_K_ * pairs_of_tile); }
  Tile tile_at(Index c) const {
    Pair* first = tiles_ + c / tile * of_tile();
    Pair* steps = first + 2 * tile * steps_;
    return {first, first + tile * steps_, steps, steps + padded_K_ * pairs_of_tile};
  }

  // A strip of keys, s positions after the first of the block, with the tile of queries from c on.
  void meet(Index c, Index first_key, Index s, Index keys) {
    const Stretch met = within(mask_.queries_of({first_key, first_key + keys}, C_), c, min_of(tile, C_ - c));
    Pair* const pairs = d_score_pairs_ + s / 2 * tile;
    if (met.empty()) {
      for (Index i = 0; i < rows / 2 * tile; ++i) pairs[i] = 0;
      return;
    }
    const Tile other = tile_at(c);
    multiply_strip<Tiles>({weight_sc_, tile}, {key_strips_ + s * steps_, steps_, 1}, other.query_columns, steps_, met,
                          {0, steps_}, keys, false);
    multiply_strip<Tiles>({d_weight_sc_, tile}, {value_strips_ + s * steps_, steps_, 1}, other.d_out_columns, steps_,
                          met, {0, steps_}, keys, false);
    for (Index r = 0; r < rows; ++r) {
      const Index key = first_key + r;
      const bool hidden = r >= keys || (mask_s_ && mask_s_[key] == 0);
      weigh(r, c, key, hidden ? Stretch{0, 0} : within(mask_.queries_of({key, key + 1}, C_), c, min_of(tile, C_ - c)));
    }
    for (Index r = 0; r < rows; r += 2) {
      const bf16* d_score = narrow_d_score_sc_ + r * tile;
      interleave_rows(pairs + r / 2 * tile, d_score, d_score + tile, tile, tile, tile);
    }
    const Stretch met_pairs{met.begin / 2, (met.end + 1) / 2};
    const auto add = [&](Rows<float> to, const bf16* weights, const Pair* panels) {
      multiply_strip<Tiles>(to, {reinterpret_cast<const Pair*>(weights), pairs_of_tile, 1}, panels,
                            Tiles::steps_of(min_of(tile, C_ - c)), {0, K_}, met_pairs, keys, true);
    };
    add(d_value_sum_sk_.from(s), narrow_weight_sc_, other.d_out_steps);  // (attention.10)
    add(d_key_sum_sk_.from(s), narrow_d_score_sc_, other.query_steps);   // (attention.9)
  }

  // Turns the scores of a key into rounded weights and gradients, which are 0 for queries that do not attend to it.
  void weigh(Index r, Index c, Index key, Stretch own) {
    const float *score_c = weight_sc_ + r * tile, *d_weight_c = d_weight_sc_ + r * tile;
    bf16 *weight_c = narrow_weight_sc_ + r * tile, *d_score_c = narrow_d_score_sc_ + r * tile;
    const float* bias_c = bias_x_ ? bias_x_ + mask_.at(c) - key : nullptr;
    constexpr Index count = weights_at_once, step = count * width;
    for (Index i = 0; i < tile; i += step) {
      if (i >= own.end || i + step <= own.begin) {
        for (Index j = i; j < i + step; j += width) {
          store<L>(weight_c + j, splat<L>(0.0f));
          store<L>(d_score_c + j, splat<L>(0.0f));
        }
        continue;
      }
      const bool whole = own.begin <= i && i + step <= own.end;
      L weight[count];
      unrolled<count>([&](int v) {
        const Index j = i + v * width;
        L score = load<L>(score_c + j);
        if (bias_c) score += load<L>(bias_c + j);  // (attention.11)
        weight[v] = (fused<L>(score, scale_, -load<L>(lse_c_ + c + j))) * float(log2_e);
        if (!whole) weight[v] = lanes_within(weight[v], own.begin - j, own.end - j, float(-infinity));
      });
      powers_of_two(weight);  // (attention.5)
      unrolled<count>([&](int v) {
        const Index j = i + v * width;
        L d_score = weight[v] * (load<L>(d_weight_c + j) - load<L>(delta_c_ + c + j));  // (attention.7)
        if (!whole) d_score = lanes_within(d_score, own.begin - j, own.end - j, 0.0f);
        store<L>(weight_c + j, weight[v]);
        store<L>(d_score_c + j, d_score);
      });
    }
  }

  void add_d_query(Index c, Index first_key, Index keys) {
    for (Index i = 0; i < min_of(tile, C_ - c); i += rows) {
      const Index queries = min_of(rows, min_of(tile, C_ - c) - i);
      const Stretch seen = within(mask_.keys_of({c + i, c + i + queries}, in_.S), first_key, keys);
      if (seen.empty()) continue;
      multiply_strip<Tiles>(d_query_ck_.from(c + i), {d_score_pairs_ + i, 1, tile}, key_steps_,  // (attention.8)
                            Tiles::steps_of(keys), {0, K_}, {seen.begin / 2, (seen.end + 1) / 2}, queries, true);
    }
  }

  const AttentionInputs<bf16>& in_;
  const Index C_, K_, padded_K_, steps_, block_;
  const AttentionMask<float> mask_;
  const Token* const mask_s_;
  const float* const bias_x_;
  const float scale_;
  const Rows<const bf16> key_sk_, value_sk_;
  const Rows<bf16> d_key_sk_, d_value_sk_;
  Pair *const tiles_, *const key_strips_, *const value_strips_, *const key_steps_, *const d_score_pairs_;
  float *const lse_c_, *const delta_c_;
  const Rows<float> d_key_sum_sk_, d_value_sum_sk_, d_query_ck_;
  alignas(64) float weight_sc_[rows * tile], d_weight_sc_[rows * tile];  // scores, and the gradients of weights
  alignas(64) bf16 narrow_weight_sc_[rows * tile], narrow_d_score_sc_[rows * tile];
};

}  // namespace

}  // namespace abh
