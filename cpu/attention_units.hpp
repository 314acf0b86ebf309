#pragma once

// Attention of bf16 rows by the unit that multiplies bf16 matrices (Tiles, cpu/gemm/gemm_narrow.hpp).
//
// As on a GPU, products read bf16 numbers: rows of query, key, value and d_out, weights, and gradients of scores. Sums,
// scores and the softmax are floats. Sections (attention_tiles.hpp) would change less than the rounding of the output.
//
// The left factor of a product has a strip of Tiles::rows rows, from which masked columns or steps at either end are
// cut off. The right factor consists of panels.

#include "cpu/attention_tiles.hpp"
#include "cpu/gemm/tile_products.hpp"

namespace abh {

namespace {

// Keys of a tile (forward), and the least number of keys of a block (backward), in positions.
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

// A block of queries with all keys to which they attend.
template <class Tiles>
class UnitForward {
  using L = Wide<float>;
  static constexpr Index width = lane_width<float>, rows = Tiles::rows;

 public:
  // Scratch memory of a worker, in words.
  static Index words(Index K, Index block) {
    const Index steps = Tiles::steps_of(K), padded_K = up_to(K, Tiles::columns), strips = up_to(block, rows);
    return (strips + unit_keys) * steps + padded_K * (Tiles::steps_of(unit_keys) + strips);
  }

  UnitForward(const AttentionForward<bf16>& a, Index b, Index n, Index first_query, Index block, const float* bias_x,
              Pair* scratch, float* sums)
      : in_(a.in),
        first_query_(first_query),
        K_(a.in.K),
        steps_(Tiles::steps_of(K_)),
        queries_(min_of(block, a.in.C - first_query)),
        mask_(a.in.mask.of_head(n)),
        mask_s_(mask_.mask_bs ? mask_.mask_bs + b * a.in.S : nullptr),
        bias_x_(bias_x),
        scale_(score_scale<float>(a.in)),
        to_exponent_(scale_ * float(log2_e)),
        key_sk_(head_rows(a.in.key_bsh, a.in.key_stride, b, n, a.in.S, a.in.N, K_)),
        value_sk_(head_rows(a.in.value_bsh, a.in.value_stride, b, n, a.in.S, a.in.N, K_)),
        out_ck_(head_rows(a.out_bch, 0, b, n, a.in.C, a.in.N, K_).from(first_query)),
        lse_c_(a.lse_bnc + (b * a.in.N + n) * a.in.C + first_query),
        query_(scratch),
        key_(query_ + up_to(block, rows) * steps_),
        value_(key_ + unit_keys * steps_),
        sum_ck_{sums, up_to(K_, Tiles::columns)} {
    pack_left<Tiles>(query_, head_rows(a.in.query_bch, a.in.query_stride, b, n, a.in.C, a.in.N, K_).from(first_query),
                     queries_, K_);
  }

  void run() {
    clear_rows(sum_ck_, queries_, sum_ck_.stride);
    for (Index c = 0; c < up_to(queries_, width); ++c) {
      max_c_[c] = float(-infinity);
      sum_c_[c] = 0;
    }
    const Stretch seen = seen_by(0, queries_);
    for (Index key = seen.begin / unit_keys * unit_keys; key < seen.end; key += unit_keys) {
      const Index keys = min_of(unit_keys, in_.S - key);
      pack_columns<Tiles>(key_, key_sk_.from(key), keys, K_);
      pack_steps<Tiles>(value_, value_sk_.from(key), keys, K_);
      for (Index s = 0; mask_s_ && s < keys; ++s) hide_s_[s] = mask_s_[key + s] == 0 ? float(-infinity) : 0;
      for (Index c = 0; c < queries_; c += rows) meet(c, min_of(rows, queries_ - c), key, keys);
    }
    finish();
  }

 private:
  Stretch seen_by(Index first, Index count) const {
    return mask_.keys_of({first_query_ + first, first_query_ + first + count}, in_.S);
  }

  // A strip of queries with a tile of keys.
  void meet(Index c, Index queries, Index first_key, Index keys) {
    const Stretch met = within(seen_by(c, queries), first_key, keys);
    if (met.empty()) return;
    multiply_strip<Tiles>({score_rs_, unit_keys}, {query_ + c * steps_, steps_, 1}, key_, steps_, met, {0, steps_},
                          queries, false);  // (attention.1), without its factor
    const Stretch whole{met.begin / (2 * amx_side) * (2 * amx_side), up_to(met.end, 2 * amx_side)};
    for (Index r = 0; r < queries; ++r) weigh(r, c + r, within(seen_by(c + r, 1), first_key, keys), whole, first_key);
    rescale(c, queries);
    multiply_strip<Tiles>(sum_ck_.from(c), {reinterpret_cast<const Pair*>(weight_rs_), unit_keys / 2, 1}, value_,
                          Tiles::steps_of(keys), {0, K_}, {met.begin / 2, (met.end + 1) / 2}, queries, true);
  }

  // Turns the scores of a query into weights, relative to the largest score so far; 0 for all other keys of `whole`.
  void weigh(Index r, Index c, Stretch own, Stretch whole, Index first_key) {
    float* score_s = score_rs_ + r * unit_keys;
    bf16* weight_s = weight_rs_ + r * unit_keys;
    const L zero = splat<L>(0.0f);
    const Index begin = own.empty() ? whole.end : own.begin / width * width, end = own.empty() ? begin : own.end;
    for (Index s = whole.begin; s < begin; s += width) store<L>(weight_s + s, zero);
    L top = splat<L>(float(-infinity));
    const float* bias_s = bias_x_ ? bias_x_ + first_key - mask_.at(first_query_ + c) : nullptr;
    for (Index s = begin; s < end; s += width) {
      L x = load<L>(score_s + s);
      if (bias_s) x += load<L>(bias_s + s);  // (attention.11)
      if (mask_s_) x = load<L>(hide_s_ + s) == zero ? x : load<L>(hide_s_ + s);
      if (s < own.begin || s + width > own.end) x = lanes_within(x, own.begin - s, own.end - s, float(-infinity));
      store<L>(score_s + s, x);
      top = larger(top, x);
    }
    const float max = larger(max_c_[c], max_halves<width>(top)), base = max == float(-infinity) ? 0 : max;
    L sum = zero;
    const auto weigh_keys = [&]<int count>(Index s) {
      L power[count];
      unrolled<count>([&](int i) { power[i] = (load<L>(score_s + s + i * width) - base) * to_exponent_; });
      powers_of_two(power);
      unrolled<count>([&](int i) {
        sum += power[i];
        store<L>(weight_s + s + i * width, power[i]);
      });
    };
    Index s = begin;
    for (; s + (weights_at_once - 1) * width < end; s += weights_at_once * width) {
      weigh_keys.template operator()<weights_at_once>(s);
    }
    for (; s < end; s += width) weigh_keys.template operator()<1>(s);
    for (; s < whole.end; s += width) store<L>(weight_s + s, zero);
    shrink_r_[r] = (max_c_[c] - base) * to_exponent_;
    max_c_[c] = max;
    here_r_[r] = sum_lanes<L>(sum);
  }

  // Rescales the sums of a strip to the new maxima.
  void rescale(Index c, Index queries) {
    for (Index r = 0; r < queries; r += width) {
      L shrink[] = {load<L>(shrink_r_ + r)};
      powers_of_two(shrink);
      store<L>(shrink_r_ + r, shrink[0]);
    }
    for (Index r = 0; r < queries; ++r) {
      const float shrink = shrink_r_[r];
      sum_c_[c + r] = fused<float>(sum_c_[c + r], shrink, here_r_[r]);  // (attention.2)
      if (shrink == 1) continue;
      float* sum_k = sum_ck_[c + r];
      for (Index k = 0; k < sum_ck_.stride; k += width) store<L>(sum_k + k, load<L>(sum_k + k) * shrink);
    }
  }

  void finish() {
    for (Index c = 0; c < queries_; c += width) {
      const L sum = load<L>(sum_c_ + c), none = splat<L>(0.0f);
      const L lse = fused<L>(load<L>(max_c_ + c), scale_, natural_log<L>(sum));  // (attention.4)
      store<L>(sum_c_ + c, sum == none ? none : 1.0f / sum);
      store<L>(max_c_ + c, sum == none ? splat<L>(float(infinity)) : lse);
    }
    for (Index c = 0; c < queries_; ++c) {
      lse_c_[c] = max_c_[c];
      for_lanes<bf16>(K_, [&]<class M>(Index k) {                       // sum_c_ now holds 1 / sum
        store<M>(out_ck_[c] + k, load<M>(sum_ck_[c] + k) * sum_c_[c]);  // (attention.3)
      });
    }
  }

  const AttentionInputs<bf16>& in_;
  const Index first_query_, K_, steps_, queries_;
  const AttentionMask<float> mask_;
  const Token* const mask_s_;
  const float* const bias_x_;
  const float scale_, to_exponent_;
  const Rows<const bf16> key_sk_, value_sk_;
  const Rows<bf16> out_ck_;
  float* const lse_c_;
  Pair *const query_, *const key_, *const value_;
  const Rows<float> sum_ck_;
  alignas(64) float max_c_[most_rows], sum_c_[most_rows], shrink_r_[up_to(rows, 16)], here_r_[up_to(rows, 16)];
  alignas(64) float hide_s_[unit_keys];
  alignas(64) float score_rs_[rows * unit_keys];
  alignas(64) bf16 weight_rs_[rows * unit_keys];
};

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

// Bias of every head at signed distances (BiasTable), filled.
template <class Device, class Scope>
BiasTable<float> filled_bias(Device& device, Scope& scratch, const AttentionInputs<bf16>& in) {
  const AttentionInputs<float> sizes{.query_bch = nullptr,
                                     .key_bsh = nullptr,
                                     .value_bsh = nullptr,
                                     .mask = in.mask,
                                     .scale = in.scale,
                                     .B = in.B,
                                     .C = in.C,
                                     .S = in.S,
                                     .N = in.N,
                                     .K = in.K};
  const BiasTable<float> bias(scratch, sizes);
  if (bias.first) parallel_for(device, in.N, [&](Index n, Index) { bias.fill(sizes, n); });
  return bias;
}

template <class Tiles, class Device>
void attention_in_unit(Device& device, const AttentionForward<bf16>& a) {
  const auto& in = a.in;
  const Index heads = in.B * in.N, block = block_rows(heads, in.C, in.K), blocks = blocks_of(in.C, block);
  const Index words = UnitForward<Tiles>::words(in.K, block);
  const Index sums = up_to(block, Tiles::rows) * up_to(in.K, Tiles::columns);
  typename Device::Scope scratch(device.workspace);
  Pair* all_words = scratch.template take<Pair>(device.threads.count() * words);
  float* all_sums = scratch.template take<float>(device.threads.count() * sums);
  const BiasTable<float> bias = filled_bias(device, scratch, in);
  parallel_for(device, heads * blocks, [&](Index task, Index worker) {
    const Index head = task / blocks, i = task % blocks;
    const Index t = i % 2 == 0 ? i / 2 : blocks - 1 - i / 2;  // as in forward_in_tiles
    [[maybe_unused]] const typename Tiles::Session session;
    UnitForward<Tiles>(a, head / in.N, head % in.N, t * block, block, bias.of_head(head % in.N),
                       all_words + worker * words, all_sums + worker * sums)
        .run();
  });
}

template <class Tiles, class Device>
void attention_in_unit(Device& device, const AttentionBackward<bf16>& a) {
  using Backward = UnitBackward<Tiles>;
  const auto& in = a.in;
  const Index heads = in.B * in.N, blocks = Backward::blocks(in.S), pieces = pieces_of(heads, blocks);
  const Index words = Backward::words(in.K, in.C, in.S), numbers = Backward::numbers(in.K, in.C, in.S);
  const Index d_query_numbers = Backward::d_query_numbers(in.K, in.C), padded_K = up_to(in.K, Tiles::columns);
  const Index workers = device.threads.count();
  const float scale = score_scale<float>(in);
  typename Device::Scope scratch(device.workspace);
  Pair* all_words = scratch.template take<Pair>(workers * words);
  float* all_numbers = scratch.template take<float>(workers * numbers);
  // Of a worker, or of every piece of every head.
  float* d_query = scratch.template take<float>((pieces == 1 ? workers : heads * pieces) * d_query_numbers);
  const BiasTable<float> bias = filled_bias(device, scratch, in);

  // Adds the pieces of rows [begin, end) of a head.
  const auto finish = [&](Index head, const float* d_query_pck, Index begin, Index end) {
    const Rows<bf16> d_query_ck =
        head_rows(a.d_query_bch, a.d_query_stride, head / in.N, head % in.N, in.C, in.N, in.K);
    for (Index c = begin; c < end; ++c) {
      for_lanes<bf16>(in.K, [&]<class M>(Index k) {
        M sum = splat<M>(0.0f);
        for (Index p = 0; p < pieces; ++p) sum += load<M>(d_query_pck + p * d_query_numbers + c * padded_K + k);
        store<M>(d_query_ck[c] + k, sum * scale);
      });
    }
  };
  parallel_for(device, heads * pieces, [&](Index task, Index worker) {
    const Index head = task / pieces;
    float* own = d_query + (pieces == 1 ? worker : task) * d_query_numbers;
    {
      [[maybe_unused]] const typename Tiles::Session session;
      Backward backward(a, head / in.N, head % in.N, bias.of_head(head % in.N), all_words + worker * words,
                        all_numbers + worker * numbers, own);
      for (Index t = task % pieces; t < blocks; t += pieces) backward.run_block(t * Backward::block_of(in.S));
    }
    if (pieces == 1) finish(head, own, 0, in.C);
  });
  if (pieces == 1) return;
  const Index tiles = blocks_of(in.C, tile);
  parallel_for(device, heads * tiles, [&](Index task, Index) {
    const Index head = task / tiles, first = task % tiles * tile;
    finish(head, d_query + head * pieces * d_query_numbers, first, min_of(first + tile, in.C));
  });
}

}  // namespace

}  // namespace abh
