#include "cpu/attention_tiles.hpp"
#include "cpu/attention_widened.hpp"
#include "cpu/pair_rows.hpp"
#include "extras/transformer_xl/relative_attention.hpp"
#include "plain/plain.hpp"

namespace abh {

// The SIMD code supports float only; other types use the plain loops of
// extras/transformer_xl/relative_attention_plain.cpp.
ABH_INSTANTIATED_ELSEWHERE(PlainDevice, relative_attention_forward, relative_attention_backward)

namespace {

// A tile of scores has queries as rows and keys as SIMD lanes. Its distances are its diagonals, at most twice as many
// as its rows. In the order of r, from the longest distance on, key s of query c is at
//
//   r = (queries - 1 - c) + s:
//
// Hence a row of the product of queries and rows of rho, read from that index on, is added to the scores of the query.
// No data is moved. A few queries at a time need only their own diagonals of the product, and a few more.
constexpr Index shift_rows = 8;
template <class T>
constexpr Index diagonals = 2 * tile + lane_width<T>;

// Tiles of queries and keys. None crosses the border of a segment, so a key is either in the same segment for all
// queries of a tile or memory for all of them.
struct Segments {
  Index C, offset, segment, memory, of_segment, before;  // tiles per segment; tiles of keys before the first query

  template <class T>
  Segments(const AttentionInputs<T>& in, const RelativeTerms<T>& terms)
      : C(in.C),
        offset(in.mask.query_offset),
        segment(max_of(1, min_of(terms.segment, in.C))),
        memory(terms.memory),
        of_segment(blocks_of(segment, tile)),
        before(blocks_of(offset, tile)) {}

  Index query_tiles() const { return blocks_of(C, segment) * of_segment; }
  Index key_tiles() const { return before + query_tiles(); }
  // May be empty in the last segment.
  Stretch queries(Index t) const {
    const Index segment_begin = t / of_segment * segment, begin = segment_begin + t % of_segment * tile;
    return {begin, min_of(min_of(begin + tile, segment_begin + segment), C)};
  }
  Stretch keys(Index t) const {
    if (t < before) return {t * tile, min_of((t + 1) * tile, offset)};
    const Stretch own = queries(t - before);
    return {offset + own.begin, offset + own.end};
  }
  // First key of the queries of a tile.
  Index first_key(Index t) const { return max_of(0, t / of_segment * segment + offset - memory); }
};

// Data of one call, for both passes.
template <class T>
struct Call {
  const AttentionInputs<T>& in;
  const RelativeTerms<T>& terms;
  Segments segments{in, terms};
  Index K = in.K, KP = padded<T>(in.K);
  T scale = score_scale<T>(in);
};

// One head of one sequence, for its tasks.
template <class T>
struct Head {
  const Call<T>& call;
  Index head, b = head / call.in.N, n = head % call.in.N;
  const AttentionInputs<T>& in = call.in;
  Rows<const T> query_ck = rows(in.query_bch, in.query_stride, in.C), key_sk = rows(in.key_bsh, in.key_stride, in.S);
  Rows<const T> value_sk = rows(in.value_bsh, in.value_stride, in.S);
  Rows<const T> rho_pk = head_rows(call.terms.rho_ph, 0, 0, n, 0, in.N, in.K);
  const T *content_bias_k = call.terms.content_bias_nk + n * in.K,
          *position_bias_k = call.terms.position_bias_nk + n * in.K;
  const Token* mask_s = in.mask.mask_bs ? in.mask.mask_bs + b * in.S : nullptr;

  template <class Element>
  Rows<Element> rows(Element* first, Index stride, Index count) const {
    return head_rows(first, stride, b, n, count, in.N, in.K);
  }
};

// A tile of scores, and its operands.
template <class T>
struct ScoreTile {
  static Index numbers(Index K, Index KP) { return 4 * tile * KP + tile * K + diagonals<T> * (K + tile) + tile * tile; }

  ScoreTile(const Head<T>& of, T* scratch)
      : head(of),
        content_ck{scratch, of.call.KP},
        position_ck(content_ck.from(tile)),
        rho_rk(position_ck.from(tile)),
        key_gks(rho_rk[2 * tile]),
        rho_kr(key_gks + tile * of.call.K),
        shifted_cr{rho_kr + diagonals<T> * of.call.K, diagonals<T>},
        score_cs{shifted_cr[tile], tile} {}

  // Rows of queries with either bias.
  void take_queries(const Stretch& rows) {
    queries = rows;
    for (Index c = 0; c < count(queries); ++c) {
      const T* query_k = head.query_ck[queries.begin + c];
      T *content_k = content_ck[c], *position_k = position_ck[c];
      for_lanes<T>(head.call.K, [&]<class L>(Index k) {
        store<L>(content_k + k, load<L>(query_k + k) + load<L>(head.content_bias_k + k));
        store<L>(position_k + k, load<L>(query_k + k) + load<L>(head.position_bias_k + k));
      });
      for (Index k = head.call.K; k < head.call.KP; ++k) content_k[k] = position_k[k] = T(0);
    }
  }

  void take_keys(const Stretch& rows) {
    keys = rows;
    transpose_groups<T>(key_gks, head.key_sk.from(keys.begin), count(keys), head.call.K);
  }

  // Unscaled scores, -infinity for masked pairs; keys before `from` are masked for all queries.
  void compute(Index from) {
    using L = Wide<T>;
    constexpr Index width = lane_width<T>;
    const Index K = head.call.K, rows = count(queries), lanes = count(keys);
    take_distances();
    for (Index g = 0; g < lanes; g += group<T>) {
      multiply<T>({.out = {score_cs.first + g, tile},
                   .a = {content_ck.first, content_ck.stride, 1},
                   .b = {key_gks + g * K, group<T>},
                   .rows = rows,
                   .lanes = group<T>,
                   .steps = K});
    }
    for_shifts([&](Index c, Index some, Index r, Index met) {
      multiply<T>({.out = {shifted_cr[c] + r, diagonals<T>},
                   .a = {position_ck[c], position_ck.stride, 1},
                   .b = {rho_kr + r, diagonals<T>},
                   .rows = some,
                   .lanes = padded<T>(met),
                   .steps = K});
    });
    const L numbers = lane_numbers<L>(), hidden = splat<L>(T(-infinity));
    T hide_s[tile];
    for (Index s = 0; s < tile; ++s) {
      const bool seen = s < lanes && keys.begin + s >= from && !(head.mask_s && head.mask_s[keys.begin + s] == 0);
      hide_s[s] = seen ? T(0) : T(-infinity);
    }
    const Index offset = head.in.mask.query_offset;
    for (Index c = 0; c < rows; ++c) {
      const Index seen = min_of(lanes, queries.begin + c + offset + 1 - keys.begin);
      T *score_s = score_cs[c], *position_s = shifted_cr[c] + first_diagonal(c);
      for (Index s = 0; s < padded<T>(lanes); s += width) {
        const L score = (load<L>(score_s + s) + load<L>(position_s + s)) * head.call.scale;  // (relative_attention.1)
        store<L>(score_s + s, splat<L>(T(seen - s)) > numbers ? score + load<L>(hide_s + s) : hidden);
      }
    }
  }

  static Index count(const Stretch& rows) { return rows.end - rows.begin; }
  Index first_diagonal(Index c) const { return count(queries) - 1 - c; }
  Index met_diagonals() const { return count(queries) + count(keys) - 1; }
  // Distance of a diagonal; negative for a later key.
  Index distance(Index r) const { return queries.end - 1 + head.in.mask.query_offset - keys.begin - r; }

  // Calls each(c, some, r, met): queries c to c + some - 1 need the diagonals r to r + met - 1.
  template <class Each>
  void for_shifts(const Each& each) const {
    for (Index c = 0; c < count(queries); c += shift_rows) {
      const Index some = min_of(shift_rows, count(queries) - c);
      each(c, some, first_diagonal(c + some - 1), count(keys) + some - 1);
    }
  }

  // Rows of rho for the diagonals, and their transpose.
  void take_distances() {
    using L = Wide<T>;
    constexpr Index width = lane_width<T>;
    const Index K = head.call.K, met = met_diagonals();
    for (Index r = 0; r < met; ++r) {
      const T* from_k = head.rho_pk[head.call.terms.row_of(max_of(0, distance(r)))];
      T* to_k = rho_rk[r];
      for_lanes<T>(K, [&]<class M>(Index k) { store<M>(to_k + k, load<M>(from_k + k)); });
      for (Index k = K; k < head.call.KP; ++k) to_k[k] = T(0);
    }
    for (Index r = 0; r < met; r += width) {
      const LaneRows<T> rows({rho_rk.first, rho_rk.stride}, r, met);
      T* out_kr = rho_kr + r;
      Index k = 0;
      for (; k + 4 <= K; k += 4) {
        L x[4];
        rows.four_channels(x, k);
        for (Index i = 0; i < 4; ++i) store<L>(out_kr + (k + i) * diagonals<T>, x[i]);
      }
      for (; k < K; ++k) store<L>(out_kr + k * diagonals<T>, rows.channel(k));
    }
  }

  const Head<T>& head;
  Stretch queries{0, 0}, keys{0, 0};
  Rows<T> content_ck, position_ck;  // queries with their biases, zero-padded
  Rows<T> rho_rk;                   // rows of distances, one per diagonal, zero-padded
  T *key_gks, *rho_kr;              // keys and distances, transposed
  Rows<T> shifted_cr, score_cs;
};

// ---- Forward ----

template <class T>
Index forward_scratch_of(Index K, Index KP) {
  return ScoreTile<T>::numbers(K, KP) + 2 * tile * KP + PairRows<T>::numbers(tile, KP);
}

// A tile of queries with every key to which they attend.
template <class T>
void forward_tile(const AttentionForward<T>& a, const Head<T>& head, Index t, T* scratch) {
  using L = Wide<T>;
  constexpr Index width = lane_width<T>;
  const Index K = head.call.K, KP = head.call.KP;
  const Segments& segments = head.call.segments;
  const Stretch queries = segments.queries(t);
  const Index rows = queries.end - queries.begin;
  if (rows <= 0) return;
  ScoreTile<T> scores(head, scratch);
  T* padded_sk = scratch + ScoreTile<T>::numbers(K, KP);
  const Rows<T> of_tile_ck{padded_sk + tile * KP, KP};
  const PairRows<T> out(of_tile_ck[tile], tile, KP);
  T max_c[tile], sum_c[tile], sum_low_c[tile];
  for (Index c = 0; c < rows; ++c) {
    max_c[c] = T(-infinity);
    sum_c[c] = sum_low_c[c] = T(0);
  }
  out.clear(rows);
  scores.take_queries(queries);
  const Index first = segments.first_key(t), end = queries.end + segments.offset;
  for (Index key = first; key < end; key += tile) {
    const Index keys = min_of(tile, end - key), lanes = padded<T>(keys);
    scores.take_keys({key, key + keys});
    scores.compute(first);
    T shrink_c[tile];
    for (Index c = 0; c < rows; ++c) {
      T* score_s = scores.score_cs[c];
      L most = splat<L>(T(-infinity));
      for (Index s = 0; s < lanes; s += width) most = larger(most, load<L>(score_s + s));
      const T max = larger(max_c[c], max_lanes(most));
      // Before its first key a query has maximum -infinity; the base is then 0, because -inf - (-inf) is NaN.
      const T base = max == T(-infinity) ? T(0) : max;
      shrink_c[c] = exponential<T>(max_c[c] - base);
      max_c[c] = max;
      RowSum<T> sum;
      for (Index s = 0; s < lanes; s += width) {
        const L power = exponential<L>(load<L>(score_s + s) - base);
        store<L>(score_s + s, power);
        sum += power;
      }
      add_compensated_scaled<T>(sum_c[c], sum_low_c[c], shrink_c[c], sum.total());  // (relative_attention.2)
    }
    multiply<T>({.out = of_tile_ck,
                 .a = {scores.score_cs.first, tile, 1},
                 .b = padded_rows<T>(head.value_sk.from(key), keys, K, false, padded_sk),
                 .rows = rows,
                 .lanes = KP,
                 .steps = keys});
    for (Index c = 0; c < rows; ++c) {
      T *total_k = out.high[c], *low_k = out.low[c], *of_tile_k = of_tile_ck[c];
      for (Index k = 0; k < KP; k += width) {
        L total = load<L>(total_k + k), low = load<L>(low_k + k);
        add_compensated_scaled<L>(total, low, splat<L>(shrink_c[c]), load<L>(of_tile_k + k));
        store<L>(total_k + k, total);
        store<L>(low_k + k, low);
      }
    }
  }
  const Rows<T> out_ck = head.rows(a.out_bch, 0, head.in.C).from(queries.begin);
  T* lse_c = a.lse_bnc + head.head * head.in.C + queries.begin;
  for (Index c = 0; c < rows; ++c) {
    const T sum = sum_c[c] + sum_low_c[c];
    const bool sees_none = sum == T(0);  // otherwise the largest score has added exp(0) = 1
    const T inverse = sees_none ? T(0) : T(1) / sum;
    for_lanes<T>(K, [&]<class M>(Index k) {  // (relative_attention.3)
      store<M>(out_ck[c] + k, (load<M>(out.high[c] + k) + load<M>(out.low[c] + k)) * inverse);
    });
    lse_c[c] = sees_none ? T(infinity) : max_c[c] + natural_log<T>(sum);  // (relative_attention.4)
  }
}

template <class Device, class T>
void forward_by_lanes(Device& device, const AttentionForward<T>& a, const RelativeTerms<T>& terms) {
  const Call<T> call{a.in, terms};
  const Index size = forward_scratch_of<T>(call.K, call.KP), tiles = call.segments.query_tiles();
  typename Device::Scope scratch(device.workspace);
  T* per_worker = scratch.template take<T>(device.threads.count() * size);
  parallel_for(device, a.in.B * a.in.N * tiles, [&](Index task, Index worker) {
    forward_tile(a, Head<T>{call, task / tiles}, task % tiles, per_worker + worker * size);
  });
}

// ---- Backward ----
//
// A task has some tiles of keys of one head: it computes the gradients of these keys and values, and its part of all
// other gradients.

template <class T>
struct BackwardSums {
  PairRows<T> d_query, d_rho, d_content_bias, d_position_bias;  // C, P, 1 and 1 rows
  BackwardSums(T* memory, Index C, Index P, Index KP)
      : d_query(memory, C, KP),
        d_rho(d_query.low[C], P, KP),
        d_content_bias(d_rho.low[P], 1, KP),
        d_position_bias(d_content_bias.low[1], 1, KP) {}
  static Index numbers(Index C, Index P, Index KP) { return PairRows<T>::numbers(C + P + 2, KP); }
};

template <class T>
Index backward_scratch_of(Index K, Index KP) {
  return ScoreTile<T>::numbers(K, KP) + 5 * tile * KP + tile * K + tile * tile + 2 * PairRows<T>::numbers(tile, KP);
}

// One tile of keys with queries that attend to some of them.
template <class T>
class BackwardTile {
 public:
  BackwardTile(const AttentionBackward<T>& a, const Head<T>& head, const BackwardSums<T>& sums, const T* delta_c,
               T* scratch)
      : head_(head),
        sums_(sums),
        scores_(head, scratch),
        delta_c_(delta_c),
        lse_c_(a.lse_bnc + head.head * head.in.C),
        d_out_ck_(head.rows(a.d_out_bch, 0, head.in.C)),
        padded_key_sk_{scratch + ScoreTile<T>::numbers(head.call.K, head.call.KP), head.call.KP},
        padded_d_out_ck_(padded_key_sk_.from(tile)),
        of_tile_ck_(padded_d_out_ck_.from(tile)),
        of_diagonals_rk_(of_tile_ck_.from(tile)),
        value_gks_(of_diagonals_rk_[2 * tile]),
        d_score_cs_{value_gks_ + tile * head.call.K, tile},
        d_key_(d_score_cs_[tile], tile, head.call.KP),
        d_value_(d_key_.low[tile], tile, head.call.KP) {}

  void take_keys(const Stretch& keys) {
    scores_.take_keys(keys);
    const Index count = keys.end - keys.begin, K = head_.call.K;
    key_sk_ = padded_rows<T>(head_.key_sk.from(keys.begin), count, K, true, padded_key_sk_.first);
    transpose_groups<T>(value_gks_, head_.value_sk.from(keys.begin), count, K);
  }

  void clear() const {
    d_key_.clear(keys());
    d_value_.clear(keys());
  }

  // A tile of queries, which do not attend to keys before `from`.
  void add_queries(const Stretch& queries, Index from) {
    const Index KP = head_.call.KP, K = head_.call.K, rows = queries.end - queries.begin;
    scores_.take_queries(queries);
    scores_.compute(from);
    const Rows<const T> d_out_ck =
        padded_rows<T>(d_out_ck_.from(queries.begin), rows, K, false, padded_d_out_ck_.first);
    for (Index g = 0; g < keys(); g += group<T>) {
      multiply<T>({.out = {d_score_cs_.first + g, tile},
                   .a = {d_out_ck.first, d_out_ck.stride, 1},
                   .b = {value_gks_ + g * K, group<T>},
                   .rows = rows,
                   .lanes = group<T>,
                   .steps = K});
    }
    weigh(queries);
    const Broadcast<T> weight_sc{scores_.score_cs.first, 1, tile}, d_score_sc{d_score_cs_.first, 1, tile};
    multiply<T>({.out = of_tile_ck_,  // (relative_attention.15)
                 .a = weight_sc,
                 .b = d_out_ck,
                 .rows = keys(),
                 .lanes = KP,
                 .steps = rows});
    d_value_.add_rows({of_tile_ck_.first, KP}, keys());
    multiply<T>({.out = of_tile_ck_,  // (relative_attention.14)
                 .a = d_score_sc,
                 .b = {scores_.content_ck.first, KP},
                 .rows = keys(),
                 .lanes = KP,
                 .steps = rows});
    d_key_.add_rows({of_tile_ck_.first, KP}, keys());
    multiply<T>({.out = of_tile_ck_,  // (relative_attention.8)
                 .a = {d_score_cs_.first, tile, 1},
                 .b = key_sk_,
                 .rows = rows,
                 .lanes = KP,
                 .steps = keys()});
    add_to_queries(sums_.d_content_bias, queries);

    shift(rows);
    scores_.for_shifts([&](Index c, Index some, Index r, Index met) {
      multiply<T>({.out = of_tile_ck_.from(c),  // (relative_attention.9)
                   .a = {scores_.shifted_cr[c] + r, diagonals<T>, 1},
                   .b = {scores_.rho_rk[r], KP},
                   .rows = some,
                   .lanes = KP,
                   .steps = met});
    });
    add_to_queries(sums_.d_position_bias, queries);
    clear_rows(of_diagonals_rk_, scores_.met_diagonals(), KP);
    scores_.for_shifts([&](Index c, Index some, Index r, Index met) {
      multiply<T>({.out = of_diagonals_rk_.from(r),  // (relative_attention.13)
                   .a = {scores_.shifted_cr[c] + r, 1, diagonals<T>},
                   .b = {scores_.position_ck[c], KP},
                   .rows = met,
                   .lanes = KP,
                   .steps = some,
                   .add = true});
    });
    for (Index r = 0; r < scores_.met_diagonals() && scores_.distance(r) >= 0; ++r) {
      const Index p = head_.call.terms.row_of(scores_.distance(r));
      for (Index k = 0; k < KP; k += lane_width<T>) sums_.d_rho.add(p, k, load<Wide<T>>(of_diagonals_rk_[r] + k));
    }
  }

  void store_sums(Rows<T> d_key_sk, Rows<T> d_value_sk) const {
    for (Index s = 0; s < keys(); ++s) {
      for_lanes<T>(head_.call.K, [&]<class M>(Index k) {
        store<M>(d_key_sk[s] + k, load<M>(d_key_.high[s] + k) + load<M>(d_key_.low[s] + k));
        store<M>(d_value_sk[s] + k, load<M>(d_value_.high[s] + k) + load<M>(d_value_.low[s] + k));
      });
    }
  }

 private:
  Index keys() const { return scores_.keys.end - scores_.keys.begin; }

  // Turns scores into weights, and d_weight into d_score, with the factor of the scores.
  void weigh(const Stretch& queries) const {
    using L = Wide<T>;
    for (Index c = 0; c < queries.end - queries.begin; ++c) {
      const T lse = lse_c_[queries.begin + c], delta = delta_c_[queries.begin + c];
      T *weight_s = scores_.score_cs[c], *d_score_s = d_score_cs_[c];
      for (Index s = 0; s < padded<T>(keys()); s += lane_width<T>) {
        const L weight = exponential<L>(load<L>(weight_s + s) - lse);  // (relative_attention.5)
        store<L>(weight_s + s, weight);
        store<L>(d_score_s + s,
                 weight * (load<L>(d_score_s + s) - delta) * head_.call.scale);  // (relative_attention.7)
      }
    }
  }

  // Copies every row of d_score to its diagonals, with zeros elsewhere.
  void shift(Index rows) const {
    using L = Wide<T>;
    for (Index c = 0; c < rows; ++c) {
      for (Index r = 0; r < diagonals<T>; r += lane_width<T>) store<L>(scores_.shifted_cr[c] + r, splat<L>(T(0)));
      T* to_s = scores_.shifted_cr[c] + scores_.first_diagonal(c);
      for_lanes<T>(keys(), [&]<class M>(Index s) { store<M>(to_s + s, load<M>(d_score_cs_[c] + s)); });
    }
  }

  // Both parts of d_query, (relative_attention.10), and of the gradients of the biases.
  void add_to_queries(const PairRows<T>& d_bias, const Stretch& queries) const {
    using L = Wide<T>;
    const Index rows = queries.end - queries.begin;
    for (Index k = 0; k < head_.call.KP; k += lane_width<T>) {
      L sum = splat<L>(T(0));
      for (Index c = 0; c < rows; ++c) {
        const L x = load<L>(of_tile_ck_[c] + k);
        sums_.d_query.add(queries.begin + c, k, x);
        sum += x;
      }
      d_bias.add(0, k, sum);
    }
  }

  const Head<T>& head_;
  const BackwardSums<T>& sums_;
  ScoreTile<T> scores_;
  const T *delta_c_, *lse_c_;
  Rows<const T> d_out_ck_, key_sk_{nullptr, 0};
  Rows<T> padded_key_sk_, padded_d_out_ck_, of_tile_ck_, of_diagonals_rk_;
  T* value_gks_;
  Rows<T> d_score_cs_;
  PairRows<T> d_key_, d_value_;
};

template <class Device, class T>
void backward_by_lanes(Device& device, const AttentionBackward<T>& a, const RelativeTerms<T>& terms,
                       const RelativeGradients<T>& d) {
  const Call<T> call{a.in, terms};
  const auto& in = a.in;
  const Segments& segments = call.segments;
  const Index heads = in.B * in.N, C = in.C, P = terms.distances, K = in.K, KP = call.KP;
  const Index tiles = segments.key_tiles(), query_tiles = blocks_of(C, tile);
  // With few heads, each head has several tasks; this depends on the shape alone.
  const Index pieces = pieces_of(heads, max_of(1, tiles));
  const Index size = backward_scratch_of<T>(K, KP), sum_numbers = BackwardSums<T>::numbers(C, P, KP);
  typename Device::Scope scratch(device.workspace);
  T* delta_bnc = scratch.template take<T>(heads * C);
  T* sums_bnp = scratch.template take<T>(heads * pieces * sum_numbers);  // p = piece
  T* per_worker = scratch.template take<T>(device.threads.count() * size);
  const auto sums_of = [=](Index task) { return BackwardSums<T>(sums_bnp + task * sum_numbers, C, P, KP); };

  parallel_for(device, heads * query_tiles, [&](Index task, Index) {
    const Head<T> head{call, task / query_tiles};
    const Index first = task % query_tiles * tile;
    sum_delta<T>(delta_bnc + head.head * C, head.rows(a.d_out_bch, 0, C),  // (relative_attention.6)
                 head.rows(a.out_bch, 0, C), first, min_of(first + tile, C), K);
  });
  parallel_for(device, heads * pieces, [&](Index task, Index worker) {
    const Head<T> head{call, task / pieces};
    const BackwardSums<T> sums = sums_of(task);
    sums.d_query.clear(C);
    sums.d_rho.clear(P);
    sums.d_content_bias.clear(1);
    sums.d_position_bias.clear(1);
    BackwardTile<T> work(a, head, sums, delta_bnc + head.head * C, per_worker + worker * size);
    const auto rows = [&](T* first, Index stride, const Stretch& keys) {
      return head.rows(first, stride, in.S).from(keys.begin);
    };
    for (Index t = task % pieces; t < tiles; t += pieces) {
      const Stretch keys = segments.keys(t);
      if (keys.empty()) continue;
      work.take_keys(keys);
      work.clear();
      // Queries of the own segment, which have separate sums, then those of later segments.
      const bool has_own = t >= segments.before;
      const Index own = t - segments.before,
                  later = has_own ? (own / segments.of_segment + 1) * segments.of_segment : 0;
      const auto add_queries = [&](Index begin, Index end) {
        for (Index q = begin; q < end && segments.first_key(q) < keys.end; ++q) {
          const Stretch queries = segments.queries(q);
          if (!queries.empty()) work.add_queries(queries, segments.first_key(q));
        }
      };
      if (has_own) add_queries(own, later);
      work.store_sums(rows(a.d_key_bsh, a.d_key_stride, keys), rows(a.d_value_bsh, a.d_value_stride, keys));
      work.clear();
      add_queries(later, segments.query_tiles());
      work.store_sums(rows(d.d_past_key_bsh, a.d_key_stride, keys), rows(d.d_past_value_bsh, a.d_value_stride, keys));
    }
  });

  parallel_for(device, heads * query_tiles, [&](Index task, Index) {
    const Head<T> head{call, task / query_tiles};
    const Rows<T> d_query_ck = head.rows(a.d_query_bch, a.d_query_stride, C);
    const Index first = task % query_tiles * tile;
    for (Index c = first; c < min_of(first + tile, C); ++c) {
      for_lanes<T>(K, [&]<class L>(Index k) {
        L sum = splat<L>(T(0));
        for (Index piece = 0; piece < pieces; ++piece) {
          const PairRows<T> part = sums_of(head.head * pieces + piece).d_query;
          sum += load<L>(part.high[c] + k) + load<L>(part.low[c] + k);
        }
        store<L>(d_query_ck[c] + k, sum);  // (relative_attention.10)
      });
    }
  });
  // Adds row i of one of the partial sums of head n over all sequences and pieces.
  const auto sum_over_tasks = [&](Index n, const auto& rows_of, Index i, const auto& result) {
    for_lanes<T>(K, [&]<class L>(Index k) {
      L sum = splat<L>(T(0)), low = sum;
      for (Index b = 0; b < in.B; ++b) {
        for (Index piece = 0; piece < pieces; ++piece) {
          const PairRows<T> part = rows_of(sums_of((b * in.N + n) * pieces + piece));
          add_compensated<L>(sum, low, load<L>(part.high[i] + k) + load<L>(part.low[i] + k));
        }
      }
      result(k, sum + low);
    });
  };
  parallel_for(device, in.N * (P + 1), [&](Index task, Index) {
    const Index n = task / (P + 1), p = task % (P + 1);
    if (p < P) {
      T* d_rho_k = d.d_rho_ph + (p * in.N + n) * K;
      sum_over_tasks(
          n, [](const BackwardSums<T>& sums) { return sums.d_rho; }, p,
          [=]<class L>(Index k, const L& sum) { store<L>(d_rho_k + k, sum); });
      return;
    }
    T *d_content_k = d.d_content_bias_nk + n * K, *d_position_k = d.d_position_bias_nk + n * K;
    sum_over_tasks(
        n, [](const BackwardSums<T>& sums) { return sums.d_content_bias; }, 0,
        [=]<class L>(Index k, const L& sum) {  // (relative_attention.11)
          store<L>(d_content_k + k, load<L>(d_content_k + k) + sum);
        });
    sum_over_tasks(
        n, [](const BackwardSums<T>& sums) { return sums.d_position_bias; }, 0,
        [=]<class L>(Index k, const L& sum) {  // (relative_attention.12)
          store<L>(d_position_k + k, load<L>(d_position_k + k) + sum);
        });
  });
}

template <class Device>
RelativeTerms<float> widened(Widened<Device>& wide, const RelativeTerms<bf16>& terms, const AttentionInputs<bf16>& in) {
  const Index H = in.N * in.K;
  return {.content_bias_nk = wide.in(terms.content_bias_nk, 1, H),
          .position_bias_nk = wide.in(terms.position_bias_nk, 1, H),
          .rho_ph = wide.in(terms.rho_ph, terms.distances, H),
          .distances = terms.distances,
          .segment = terms.segment,
          .memory = terms.memory};
}

}  // namespace

template <class Device, class T>
void relative_attention_forward(Device& device, const AttentionForward<T>& a, const RelativeTerms<T>& terms) {
  if constexpr (is_float<T>) {
    forward_by_lanes(device, a, terms);
  } else if constexpr (is_narrow<T>) {
    in_float(device, [&](auto& wide) {
      relative_attention_forward<Device, float>(device, widened(wide, a), widened(wide, terms, a.in));
    });
  } else {
    on_one_thread(device, [&] {
      PlainDevice plain;
      relative_attention_forward(plain, a, terms);
    });
  }
}

template <class Device, class T>
void relative_attention_backward(Device& device, const AttentionBackward<T>& a, const RelativeTerms<T>& terms,
                                 const RelativeGradients<T>& d) {
  if constexpr (is_float<T>) {
    backward_by_lanes(device, a, terms, d);
  } else if constexpr (is_narrow<T>) {
    in_float(device, [&](auto& wide) {
      const Index H = a.in.N * a.in.K, BS = a.in.B * a.in.S;
      relative_attention_backward<Device, float>(
          device, widened(wide, a), widened(wide, terms, a.in),
          {.d_past_key_bsh = wide.out(d.d_past_key_bsh, BS, H, a.d_key_stride),
           .d_past_value_bsh = wide.out(d.d_past_value_bsh, BS, H, a.d_value_stride),
           .d_rho_ph = wide.out(d.d_rho_ph, terms.distances, H),
           .d_content_bias_nk = d.d_content_bias_nk,
           .d_position_bias_nk = d.d_position_bias_nk});
    });
  } else {
    on_one_thread(device, [&] {
      PlainDevice plain;
      relative_attention_backward(plain, a, terms, d);
    });
  }
}

ABH_INSTANTIATE(Cpu, relative_attention_forward, relative_attention_backward)

}  // namespace abh
