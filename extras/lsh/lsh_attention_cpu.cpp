#include "cpu/attention_tiles.hpp"
#include "cpu/widened.hpp"
#include "extras/lsh/lsh_attention.hpp"
#include "plain/plain.hpp"

namespace abh {

// The SIMD code supports float only; other types use the plain loops of extras/lsh/lsh_attention_plain.cpp.
ABH_INSTANTIATED_ELSEWHERE(PlainDevice, lsh_order, lsh_attention_forward, lsh_attention_backward)

namespace {

// ---- The order of a round ----

// Index of the first maximum among R numbers, followed by their negatives.
template <class T>
Token first_largest(const T* rotated_r, Index R) {
  Index at_largest = 0, at_smallest = 0;
  for (Index r = 1; r < R; ++r) {
    if (rotated_r[r] > rotated_r[at_largest]) at_largest = r;
    if (rotated_r[r] < rotated_r[at_smallest]) at_smallest = r;
  }
  const bool is_negative = rotated_r[at_largest] < -rotated_r[at_smallest];
  return static_cast<Token>(is_negative ? R + at_smallest : at_largest);
}

// One round of one head: buckets, then places by counting the positions per bucket.
template <class T>
void order_round(const LshOrdering<T>& a, Index task, T* scratch, Index* end_of_bucket) {
  const Index head = task / a.U, b = head / a.N, n = head % a.N, RP = padded<T>(a.R);
  const Rows<const T> query_ck = head_rows(a.query_bch, a.query_stride, b, n, a.C, a.N, a.K);
  const T* rotations_kr = a.rotations_nukr + (n * a.U + task % a.U) * a.K * a.R;
  const Rows<const T> padded_kr = padded_rows<T>(Rows<const T>{rotations_kr, a.R}, a.K, a.R, true, scratch);
  const Rows<T> rotated_cr{scratch + a.K * RP, RP};
  const Token* mask_c = a.mask_bc ? a.mask_bc + b * a.C : nullptr;
  Token *bucket_c = a.out.bucket_bnuc + task * a.C, *place_c = a.out.place_bnuc + task * a.C,
        *position_c = a.out.position_bnuc + task * a.C;
  for (Index first = 0; first < a.C && !a.buckets_stand; first += tile) {
    const Index rows = min_of(tile, a.C - first);
    multiply<T>({.out = rotated_cr,  // (lsh_attention.3)
                 .a = {query_ck[first], query_ck.stride, 1},
                 .b = padded_kr,
                 .rows = rows,
                 .lanes = RP,
                 .steps = a.K});
    for (Index c = 0; c < rows; ++c) {
      const bool is_masked = mask_c && mask_c[first + c] == 0;
      const Token largest = first_largest(rotated_cr[c], a.R);  // (lsh_attention.4)
      bucket_c[first + c] = is_masked ? static_cast<Token>(2 * a.R) : largest;
    }
  }
  const Index buckets = 2 * a.R + 1;
  for (Index i = 0; i < buckets; ++i) end_of_bucket[i] = 0;
  for (Index c = 0; c < a.C; ++c) ++end_of_bucket[bucket_c[c]];
  for (Index i = 1; i < buckets; ++i) end_of_bucket[i] += end_of_bucket[i - 1];
  for (Index c = a.C - 1; c >= 0; --c) {
    const Index place = --end_of_bucket[bucket_c[c]];
    place_c[c] = static_cast<Token>(place);  // (lsh_attention.5)
    position_c[place] = static_cast<Token>(c);
  }
}

template <class Device, class T>
void order_by_lanes(Device& device, const LshOrdering<T>& a) {
  const Index size = (a.K + tile) * padded<T>(a.R), buckets = 2 * a.R + 1;
  typename Device::Scope scratch(device.workspace);
  T* per_worker = scratch.template take<T>(device.threads.count() * size);
  Index* end_of_bucket = scratch.template take<Index>(device.threads.count() * buckets);
  parallel_for(device, a.B * a.N * a.U, [&](Index task, Index worker) {
    order_round(a, task, per_worker + worker * size, end_of_bucket + worker * buckets);
  });
}

// ---- Pieces ----
//
// A task has a piece of one round of one head: its queries with the keys of the same and of the previous piece, one
// tile of each at a time. Within a round no two tasks share a query; rounds run one after another.

// Data of one call, for all tasks.
template <class T>
struct Call {
  const LshInputs<T>& in;
  const T* inverse_bnc;  // 1 / length
  Index K = in.K, KP = padded<T>(in.K), heads = in.B * in.N, pieces = blocks_of(in.C, in.piece_size);
  T scale = T(1) / square_root(T(in.K));
};

// One head of one sequence in one round.
template <class T>
struct Round {
  const Call<T>& call;
  Index head, u, b = head / call.in.N, n = head % call.in.N;
  const LshInputs<T>& in = call.in;
  Rows<const T> query_ck = rows(in.query_bch, in.query_stride), value_ck = rows(in.value_bch, in.value_stride);
  const T* inverse_c = call.inverse_bnc + head * in.C;
  const Token* mask_c = in.mask_bc ? in.mask_bc + b * in.C : nullptr;
  const Token* position_c = in.order.position_bnuc + (head * in.U + u) * in.C;  // by place in the sorted order

  const Token* bucket_c(Index e) const { return in.order.bucket_bnuc + (head * in.U + e) * in.C; }
  const Token* place_c(Index e) const { return in.order.place_bnuc + (head * in.U + e) * in.C; }
  template <class Element>
  Rows<Element> rows(Element* first, Index stride) const {
    return head_rows(first, stride, b, n, in.C, in.N, in.K);
  }
};

// Rows of the positions at the places [first, first + count), zero-padded.
template <class T>
void gather(Rows<T> to_ck, Rows<const T> from_ck, const Token* position_c, Index count, Index K) {
  for (Index i = 0; i < count; ++i) {
    const T* from_k = from_ck[position_c[i]];
    T* to_k = to_ck[i];
    for_lanes<T>(K, [=]<class L>(Index k) { store<L>(to_k + k, load<L>(from_k + k)); });
    for (Index k = K; k < to_ck.stride; ++k) to_k[k] = T(0);
  }
}

// A tile of scores, and its operands.
template <class T>
struct ScoreTile {
  static Index numbers(const Call<T>& call) { return tile * (3 * call.KP + call.K + 2 * tile + 3 + 2 * call.in.U); }

  ScoreTile(const Round<T>& of, T* scratch)
      : round(of),
        query_ck{scratch, of.call.KP},
        key_sk(query_ck.from(tile)),
        value_sk(key_sk.from(tile)),
        key_gks(value_sk[tile]),
        score_cs{key_gks + tile * of.call.K, tile},
        share_cs(score_cs.from(tile)),
        position_s(share_cs[tile]),
        real_s(position_s + tile),
        factor_s(real_s + tile),
        piece_us(factor_s + tile),
        bucket_us(piece_us + tile * of.in.U) {}

  void take_queries(Index place, Index count) {
    queries = count;
    query_c = round.position_c + place;
    gather(query_ck, round.query_ck, query_c, queries, round.call.K);
  }

  // Keys as unnormalised query rows: their length is applied to the scores.
  void take_keys(Index place, Index count) {
    const auto& in = round.in;
    keys = count;
    key_c = round.position_c + place;
    gather(key_sk, round.query_ck, key_c, keys, round.call.K);
    gather(value_sk, round.value_ck, key_c, keys, round.call.K);
    transpose_groups<T>(key_gks, Rows<const T>{key_sk.first, key_sk.stride}, keys, round.call.K);
    for (Index s = 0; s < padded<T>(keys); ++s) {
      const bool is_there = s < keys;
      const Index c = key_c[is_there ? s : 0];
      position_s[s] = T(c);
      real_s[s] = is_there && !(round.mask_c && round.mask_c[c] == 0) ? T(1) : T(0);
      factor_s[s] = round.call.scale * round.inverse_c[c];
      for (Index e = 0; e < in.U; ++e) {
        piece_us[e * tile + s] = T(round.place_c(e)[c] / in.piece_size);  // (lsh_attention.6)
        bucket_us[e * tile + s] = T(round.bucket_c(e)[c]);
      }
    }
  }

  // Scores, -infinity if a query does not meet a key in this round; and the factor of a pair in this round: the sum
  // over all rounds in which they meet is its count.
  void compute() {
    using L = Wide<T>;
    const L one = splat<L>(T(1)), zero = splat<L>(T(0)), hidden = splat<L>(T(-infinity));
    const auto& in = round.in;
    for (Index g = 0; g < keys; g += group<T>) {
      multiply<T>({.out = {score_cs.first + g, tile},
                   .a = {query_ck.first, query_ck.stride, 1},
                   .b = {key_gks + g * round.call.K, group<T>},
                   .rows = queries,
                   .lanes = group<T>,
                   .steps = round.call.K});
    }
    for (Index i = 0; i < queries; ++i) {
      const Index c = query_c[i];
      const L position = splat<L>(T(c));
      T *score_s = score_cs[i], *share_s = share_cs[i];
      for (Index s = 0; s < padded<T>(keys); s += lane_width<T>) {
        L meets = zero, here = zero;
        for (Index e = 0; e < in.U; ++e) {
          // 0 for the own piece and the previous piece.
          const L apart = T(round.place_c(e)[c] / in.piece_size) - load<L>(piece_us + e * tile + s);
          L far = apart * (apart - one);
          if (in.within_bucket) {
            const L other = T(round.bucket_c(e)[c]) - load<L>(bucket_us + e * tile + s);
            far += other * other;
          }
          const L met = far == zero ? one : zero;
          meets += met;
          if (e == round.u) here = met;
        }
        const L at = load<L>(position_s + s);
        const L open = in.causal ? (position > at ? here : zero) : (position == at ? zero : here);
        const L share = open * load<L>(real_s + s) / (in.counted ? one : larger(meets, one));
        const L score = load<L>(score_s + s) * load<L>(factor_s + s);  // (lsh_attention.7)
        store<L>(share_s + s, share);
        store<L>(score_s + s, share > zero ? score : hidden);
      }
    }
  }

  const Round<T>& round;
  Index queries = 0, keys = 0;
  const Token *query_c = nullptr, *key_c = nullptr;  // positions of the tile's queries and keys
  Rows<T> query_ck, key_sk, value_sk;                // zero-padded
  T* key_gks;
  Rows<T> score_cs, share_cs;
  T *position_s, *real_s, *factor_s, *piece_us, *bucket_us;
};

// Calls each(place, count) for the tiles of a piece.
template <class T, class Each>
void for_tiles(const LshInputs<T>& in, Index piece, const Each& each) {
  const Index end = min_of((piece + 1) * in.piece_size, in.C);
  for (Index place = piece * in.piece_size; place < end; place += tile) each(place, min_of(tile, end - place));
}

template <class Device, class T>
void make_inverses(Device& device, T* inverse_bnc, const LshInputs<T>& in) {
  const Index tiles = blocks_of(in.C, tile);
  parallel_for(device, in.B * in.N * tiles, [&](Index task, Index) {
    const Index head = task / tiles, first = task % tiles * tile;
    const Rows<const T> query_ck = head_rows(in.query_bch, in.query_stride, head / in.N, head % in.N, in.C, in.N, in.K);
    for (Index c = first; c < min_of(first + tile, in.C); ++c) {
      const T* query_k = query_ck[c];
      RowSum<T> square;
      for_terms<T>(in.K, [&]<class L>(Index k) { square.add_product(load<L>(query_k + k), load<L>(query_k + k)); });
      const T length = square_root(square.total() / T(in.K) + T(lsh_epsilon));  // (lsh_attention.1)
      inverse_bnc[head * in.C + c] = T(1) / length;
    }
  });
}

// ---- Forward ----

// State of every query over the rounds so far (online softmax).
template <class T>
struct Met {
  T *max_bnc, *sum_bnc;
  Rows<T> out_ck;  // all heads, one after another
};

template <class T>
Index forward_scratch_of(const Call<T>& call) {
  return ScoreTile<T>::numbers(call) + tile * call.KP;
}

template <class T>
void forward_piece(const Round<T>& round, Index piece, const Met<T>& met, T* scratch) {
  using L = Wide<T>;
  constexpr Index width = lane_width<T>;
  const Index KP = round.call.KP, first = round.head * round.in.C;
  ScoreTile<T> scores(round, scratch);
  const Rows<T> of_tile_ck{scratch + ScoreTile<T>::numbers(round.call), KP};
  const auto add_keys = [&](Index place, Index count) {
    scores.take_keys(place, count);
    scores.compute();
    T shrink_c[tile];
    for (Index i = 0; i < scores.queries; ++i) {
      const Index c = first + scores.query_c[i];
      T *score_s = scores.score_cs[i], *share_s = scores.share_cs[i];
      L most = splat<L>(T(-infinity));
      for (Index s = 0; s < padded<T>(count); s += width) most = larger(most, load<L>(score_s + s));
      const T max = larger(met.max_bnc[c], max_lanes(most));
      // Before its first key a query has maximum -infinity; the base is then 0, because -inf - (-inf) is NaN.
      const T base = max == T(-infinity) ? T(0) : max;
      shrink_c[i] = exponential<T>(met.max_bnc[c] - base);
      met.max_bnc[c] = max;
      RowSum<T> sum;
      for (Index s = 0; s < padded<T>(count); s += width) {
        const L power = load<L>(share_s + s) * exponential<L>(load<L>(score_s + s) - base);
        store<L>(score_s + s, power);
        sum += power;
      }
      met.sum_bnc[c] = fused<T>(met.sum_bnc[c], shrink_c[i], sum.total());  // (lsh_attention.8)
    }
    multiply<T>({.out = of_tile_ck,
                 .a = {scores.score_cs.first, tile, 1},
                 .b = {scores.value_sk.first, KP},
                 .rows = scores.queries,
                 .lanes = KP,
                 .steps = count});
    for (Index i = 0; i < scores.queries; ++i) {
      T *total_k = met.out_ck[first + scores.query_c[i]], *of_tile_k = of_tile_ck[i];
      for (Index k = 0; k < KP; k += width) {
        store<L>(total_k + k, fused<L>(load<L>(total_k + k), shrink_c[i], load<L>(of_tile_k + k)));
      }
    }
  };
  for_tiles(round.in, piece, [&](Index place, Index count) {
    scores.take_queries(place, count);
    if (piece > 0) for_tiles(round.in, piece - 1, add_keys);
    for_tiles(round.in, piece, add_keys);
  });
}

template <class Device, class T>
void forward_by_lanes(Device& device, const LshForward<T>& a) {
  const auto& in = a.in;
  typename Device::Scope scratch(device.workspace);
  T* inverse_bnc = scratch.template take<T>(in.B * in.N * in.C);
  const Call<T> call{in, inverse_bnc};
  const Index rows = call.heads * in.C, size = forward_scratch_of(call), tiles = blocks_of(in.C, tile);
  const Met<T> met{scratch.template take<T>(rows),
                   scratch.template take<T>(rows),
                   {scratch.template take<T>(rows * call.KP), call.KP}};
  T* per_worker = scratch.template take<T>(device.threads.count() * size);
  make_inverses(device, inverse_bnc, in);
  parallel_for(device, call.heads * tiles, [&](Index task, Index) {
    const Index first = task % tiles * tile, count = min_of(tile, in.C - first), at = task / tiles * in.C + first;
    clear_rows<T>(met.out_ck.from(at), count, call.KP);
    for (Index c = at; c < at + count; ++c) {
      met.max_bnc[c] = T(-infinity);
      met.sum_bnc[c] = T(0);
    }
  });
  for (Index u = 0; u < in.U; ++u) {
    parallel_for(device, call.heads * call.pieces, [&](Index task, Index worker) {
      const Round<T> round{call, task / call.pieces, u};
      forward_piece(round, task % call.pieces, met, per_worker + worker * size);
    });
  }
  parallel_for(device, call.heads * tiles, [&](Index task, Index) {
    const Index head = task / tiles, first = task % tiles * tile;
    const auto rows_of = [&](auto* array, Index stride) {
      return head_rows(array, stride, head / in.N, head % in.N, in.C, in.N, in.K);
    };
    const Rows<const T> value_ck = rows_of(in.value_bch, in.value_stride);
    const Rows<T> out_ck = rows_of(a.out_bch, Index(0));
    for (Index c = first; c < min_of(first + tile, in.C); ++c) {
      const Index at = head * in.C + c;
      const T sum = met.sum_bnc[at];
      const bool meets_no_key = sum == T(0);  // otherwise the largest score has added a multiple of exp(0) = 1
      const T* from_k = meets_no_key ? value_ck[c] : met.out_ck[at];
      const T inverse = meets_no_key ? T(1) : T(1) / sum;
      T* out_k = out_ck[c];
      for_lanes<T>(in.K, [=]<class L>(Index k) {
        store<L>(out_k + k, load<L>(from_k + k) * inverse);  // (lsh_attention.9)
      });
      const T lse = met.max_bnc[at] + natural_log<T>(sum);  // (lsh_attention.10)
      a.lse_bnc[at] = meets_no_key ? T(infinity) : lse;
    }
  });
}

// ---- Backward ----

// Gradients of all heads, one after another. A row has one writer per array and round: [0] the task of its own piece
// and [1], for keys of the previous piece, the task of the next piece.
template <class T>
struct Sums {
  Rows<T> d_asked_ck, d_key_sk[2], d_value_sk[2];  // d_key_sk: divided by the length
};

template <class T>
Index backward_scratch_of(const Call<T>& call) {
  return ScoreTile<T>::numbers(call) + tile * (3 * call.KP + call.K + tile);
}

template <class T>
void backward_piece(const LshBackward<T>& a, const Round<T>& round, Index piece, const Sums<T>& sums,
                    const T* delta_bnc, T* scratch) {
  using L = Wide<T>;
  const Index K = round.call.K, KP = round.call.KP, first = round.head * round.in.C;
  ScoreTile<T> scores(round, scratch);
  const Rows<T> d_out_ck{scratch + ScoreTile<T>::numbers(round.call), KP}, d_asked_ck = d_out_ck.from(tile),
                                                                           of_tile_ck = d_asked_ck.from(tile);
  T* value_gks = of_tile_ck[tile];
  const Rows<T> d_score_cs{value_gks + tile * K, tile};
  const Rows<const T> d_out_of_head_ck = round.rows(a.d_out_bch, 0);
  const auto add_rows_at = [&](Rows<T> to_ck, Rows<T> from_ck, const Token* position_c, Index count) {
    for (Index i = 0; i < count; ++i) {
      T *to_k = to_ck[first + position_c[i]], *from_k = from_ck[i];
      for (Index k = 0; k < KP; k += lane_width<T>) store<L>(to_k + k, load<L>(to_k + k) + load<L>(from_k + k));
    }
  };
  for_tiles(round.in, piece, [&](Index query_place, Index queries) {
    scores.take_queries(query_place, queries);
    gather(d_out_ck, d_out_of_head_ck, scores.query_c, queries, K);
    clear_rows<T>(d_asked_ck, queries, KP);
    for (const int before : {1, 0}) {
      if (piece < before) continue;
      for_tiles(round.in, piece - before, [&](Index place, Index keys) {
        scores.take_keys(place, keys);
        scores.compute();
        transpose_groups<T>(value_gks, Rows<const T>{scores.value_sk.first, KP}, keys, K);
        for (Index g = 0; g < keys; g += group<T>) {
          multiply<T>({.out = {d_score_cs.first + g, tile},
                       .a = {d_out_ck.first, KP, 1},
                       .b = {value_gks + g * K, group<T>},
                       .rows = queries,
                       .lanes = group<T>,
                       .steps = K});
        }
        for (Index i = 0; i < queries; ++i) {
          const Index c = first + scores.query_c[i];
          const T lse = a.lse_bnc[c], delta = delta_bnc[c];
          T *weight_s = scores.score_cs[i], *share_s = scores.share_cs[i], *d_score_s = d_score_cs[i];
          for (Index s = 0; s < padded<T>(keys); s += lane_width<T>) {
            const L power = exponential<L>(load<L>(weight_s + s) - lse);
            const L weight = load<L>(share_s + s) * power;                // (lsh_attention.11)
            const L d_score = weight * (load<L>(d_score_s + s) - delta);  // (lsh_attention.13)
            store<L>(weight_s + s, weight);
            store<L>(d_score_s + s, d_score * load<L>(scores.factor_s + s));  // the key's length for both products
          }
        }
        multiply<T>({.out = d_asked_ck,  // (lsh_attention.14)
                     .a = {d_score_cs.first, tile, 1},
                     .b = {scores.key_sk.first, KP},
                     .rows = queries,
                     .lanes = KP,
                     .steps = keys,
                     .add = true});
        Product<T> by_key{.out = of_tile_ck,  // (lsh_attention.15)
                          .a = {d_score_cs.first, 1, tile},
                          .b = {scores.query_ck.first, KP},
                          .rows = keys,
                          .lanes = KP,
                          .steps = queries};
        multiply<T>(by_key);
        add_rows_at(sums.d_key_sk[before], of_tile_ck, scores.key_c, keys);
        by_key.a = {scores.score_cs.first, 1, tile};  // (lsh_attention.17)
        by_key.b = {d_out_ck.first, KP};
        multiply<T>(by_key);
        add_rows_at(sums.d_value_sk[before], of_tile_ck, scores.key_c, keys);
      });
    }
    add_rows_at(sums.d_asked_ck, d_asked_ck, scores.query_c, queries);
  });
}

template <class Device, class T>
void backward_by_lanes(Device& device, const LshBackward<T>& a) {
  const auto& in = a.in;
  typename Device::Scope scratch(device.workspace);
  T* inverse_bnc = scratch.template take<T>(in.B * in.N * in.C);
  const Call<T> call{in, inverse_bnc};
  const Index K = in.K, KP = call.KP, count = call.heads * in.C, tiles = blocks_of(in.C, tile),
              size = backward_scratch_of(call);
  T* delta_bnc = scratch.template take<T>(count);
  T* sums_ick = scratch.template take<T>(5 * count * KP);
  T* per_worker = scratch.template take<T>(device.threads.count() * size);
  const auto sum_rows = [&](Index i) { return Rows<T>{sums_ick + i * count * KP, KP}; };
  const Sums<T> sums{sum_rows(0), {sum_rows(1), sum_rows(2)}, {sum_rows(3), sum_rows(4)}};
  device.set_zero(sums_ick, 5 * count * KP);
  make_inverses(device, inverse_bnc, in);
  const auto rows_of = [&](auto* first, Index stride, Index head) {
    return head_rows(first, stride, head / in.N, head % in.N, in.C, in.N, K);
  };
  parallel_for(device, call.heads * tiles, [&](Index task, Index) {
    const Index head = task / tiles, first = task % tiles * tile;
    sum_delta<T>(delta_bnc + head * in.C, rows_of(a.d_out_bch, 0, head),  // (lsh_attention.12)
                 rows_of(a.out_bch, 0, head), first, min_of(first + tile, in.C), K);
  });
  for (Index u = 0; u < in.U; ++u) {
    parallel_for(device, call.heads * call.pieces, [&](Index task, Index worker) {
      const Round<T> round{call, task / call.pieces, u};
      backward_piece(a, round, task % call.pieces, sums, delta_bnc, per_worker + worker * size);
    });
  }
  parallel_for(device, call.heads * tiles, [&](Index task, Index) {
    const Index head = task / tiles, first = task % tiles * tile;
    const Rows<const T> query_ck = rows_of(in.query_bch, in.query_stride, head),
                        d_out_ck = rows_of(a.d_out_bch, 0, head);
    const Rows<T> d_query_ck = rows_of(a.d_query_bch, a.d_query_stride, head),
                  d_value_ck = rows_of(a.d_value_bch, a.d_value_stride, head);
    for (Index c = first; c < min_of(first + tile, in.C); ++c) {
      const Index at = head * in.C + c;
      const T *query_k = query_ck[c], *d_out_k = d_out_ck[c];
      const T *d_asked_k = sums.d_asked_ck[at], *own_k = sums.d_key_sk[0][at], *before_k = sums.d_key_sk[1][at],
              *own_value_k = sums.d_value_sk[0][at], *before_value_k = sums.d_value_sk[1][at];
      T *d_query_k = d_query_ck[c], *d_value_k = d_value_ck[c];
      const T inverse = inverse_bnc[at], lonely = a.lse_bnc[at] == T(infinity) ? T(1) : T(0);
      RowSum<T> product;
      for_terms<T>(K, [&]<class L>(Index k) {
        product.add_product(load<L>(query_k + k), load<L>(own_k + k) + load<L>(before_k + k));
      });
      const T along = product.total() * inverse * inverse / T(K);
      for_lanes<T>(K, [=]<class L>(Index k) {
        const L d_key = load<L>(own_k + k) + load<L>(before_k + k);
        const L across = fused<L>(-load<L>(query_k + k), along, d_key);
        store<L>(d_query_k + k, load<L>(d_asked_k + k) + across);  // (lsh_attention.16)
        const L d_value = load<L>(own_value_k + k) + load<L>(before_value_k + k);
        store<L>(d_value_k + k, fused<L>(load<L>(d_out_k + k), lonely, d_value));
      });
    }
  });
}

template <class Device>
LshInputs<float> widened(Widened<Device>& wide, const LshInputs<bf16>& in) {
  const Index H = in.N * in.K, BC = in.B * in.C;
  return {.query_bch = wide.in(in.query_bch, BC, H, in.query_stride),
          .value_bch = wide.in(in.value_bch, BC, H, in.value_stride),
          .order = in.order,
          .mask_bc = in.mask_bc,
          .causal = in.causal,
          .counted = in.counted,
          .within_bucket = in.within_bucket,
          .piece_size = in.piece_size,
          .B = in.B,
          .C = in.C,
          .N = in.N,
          .K = in.K,
          .U = in.U};
}

}  // namespace

template <class Device, class T>
void lsh_order(Device& device, const LshOrdering<T>& a) {
  if constexpr (is_float<T>) {
    order_by_lanes(device, a);
  } else if constexpr (is_narrow<T>) {
    in_float(device, [&](auto& wide) {
      const Index H = a.N * a.K;
      lsh_order<Device, float>(device, {.out = a.out,
                                        .query_bch = wide.in(a.query_bch, a.B * a.C, H, a.query_stride),
                                        .rotations_nukr = wide.in(a.rotations_nukr, a.N * a.U * a.K, a.R),
                                        .mask_bc = a.mask_bc,
                                        .buckets_stand = a.buckets_stand,
                                        .B = a.B,
                                        .C = a.C,
                                        .N = a.N,
                                        .K = a.K,
                                        .U = a.U,
                                        .R = a.R});
    });
  } else {
    on_one_thread(device, [&] {
      PlainDevice plain;
      lsh_order(plain, a);
    });
  }
}

template <class Device, class T>
void lsh_attention_forward(Device& device, const LshForward<T>& a) {
  if constexpr (is_float<T>) {
    forward_by_lanes(device, a);
  } else if constexpr (is_narrow<T>) {
    in_float(device, [&](auto& wide) {
      float* out_bch = wide.out(a.out_bch, a.in.B * a.in.C, a.in.N * a.in.K);
      lsh_attention_forward<Device, float>(device,
                                           {.out_bch = out_bch, .lse_bnc = a.lse_bnc, .in = widened(wide, a.in)});
    });
  } else {
    on_one_thread(device, [&] {
      PlainDevice plain;
      lsh_attention_forward(plain, a);
    });
  }
}

template <class Device, class T>
void lsh_attention_backward(Device& device, const LshBackward<T>& a) {
  if constexpr (is_float<T>) {
    backward_by_lanes(device, a);
  } else if constexpr (is_narrow<T>) {
    in_float(device, [&](auto& wide) {
      const Index H = a.in.N * a.in.K, BC = a.in.B * a.in.C;
      lsh_attention_backward<Device, float>(device, {.d_query_bch = wide.out(a.d_query_bch, BC, H, a.d_query_stride),
                                                     .d_value_bch = wide.out(a.d_value_bch, BC, H, a.d_value_stride),
                                                     .d_out_bch = wide.in(a.d_out_bch, BC, H),
                                                     .out_bch = wide.in(a.out_bch, BC, H),
                                                     .lse_bnc = a.lse_bnc,
                                                     .in = widened(wide, a.in)});
    });
  } else {
    on_one_thread(device, [&] {
      PlainDevice plain;
      lsh_attention_backward(plain, a);
    });
  }
}

ABH_INSTANTIATE(Cpu, lsh_order, lsh_attention_forward, lsh_attention_backward)

}  // namespace abh
