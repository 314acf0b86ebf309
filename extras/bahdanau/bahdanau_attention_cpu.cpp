#include "cpu/attention_tiles.hpp"
#include "cpu/attention_widened.hpp"
#include "cpu/pair_rows.hpp"
#include "extras/bahdanau/bahdanau_attention.hpp"
#include "plain/plain.hpp"

namespace abh {

// The SIMD code supports float only; other types use the loops of extras/bahdanau/bahdanau_attention_plain.cpp.
ABH_INSTANTIATED_ELSEWHERE(PlainDevice, bahdanau_attention_forward, bahdanau_attention_backward)

namespace {

// In logits, four channels share one division; in gradients, four keys, because every reciprocal is needed separately.
// Divisors are clamped to `most`, so that a product of four is finite. 1 / most is far below the rounding error of a
// float near 1.
constexpr Index at_once = 4;
constexpr float most = 1 << 30;

// Channels of a row in scratch memory: a multiple of the SIMD width and of four.
template <class T>
Index padded_channels(Index K) {
  constexpr Index multiple = lane_width < T >> at_once ? lane_width<T> : at_once;
  return blocks_of(K, multiple) * multiple;
}

// exp(2 x) of the rows x of all heads, queries or keys, head by head in scratch memory. If the exponentials of a row
// would be 0 or not finite, the row is `far`: it stores 1, which is not used.
template <class T>
struct Powers {
  T* first;  // (B N, count, KP)
  T* far;    // (B N, count): 1 or 0
  Index count, KP;

  template <class Scope>
  Powers(Scope& scratch, Index heads, Index rows, Index padded_K)
      : first(scratch.template take<T>(heads * rows * padded_K)),
        far(scratch.template take<T>(heads * rows)),
        count(rows),
        KP(padded_K) {}

  Rows<const T> of_head(Index head) const { return {first + head * count * KP, KP}; }
  const T* far_of_head(Index head) const { return far + head * count; }

  // Row c of a head. Padding is 0.
  void fill(Index head, Index c, const T* x_k, Index K) const {
    T* power_k = first + (head * count + c) * KP;
    bool is_far = false;
    for (Index k = 0; k < K; ++k) is_far = is_far || !(magnitude<T>(x_k[k]) <= T(bahdanau_largest_row));
    far[head * count + c] = is_far ? T(1) : T(0);
    for_lanes<T>(K, [=]<class L>(Index k) {
      store<L>(power_k + k, is_far ? splat<L>(T(1)) : exponential<L>(T(2) * load<L>(x_k + k)));
    });
    for (Index k = K; k < KP; ++k) power_k[k] = T(0);
  }
};

// Data of one call, for both passes.
template <class T>
struct Plan {
  AttentionInputs<T> in;  // with a scale of 1, because biases are added to unscaled logits
  const T* score_nk;
  Index KP;
  Powers<T> query, key;
  BiasTable<T> bias;
  T* padded_score_nk;

  template <class Scope>
  Plan(Scope& scratch, const AttentionInputs<T>& inputs, const T* score)
      : in(inputs),
        score_nk(score),
        KP(padded_channels<T>(inputs.K)),
        query(scratch, inputs.B * inputs.N, inputs.C, KP),
        key(scratch, inputs.B * inputs.N, inputs.S, KP),
        bias(scratch, inputs),
        padded_score_nk(scratch.template take<T>(inputs.N * KP)) {
    in.scale = 1;
  }

  template <class Device>
  void fill(Device& device) const {
    constexpr Index rows_per_task = 32;
    const auto fill_powers = [&](const Powers<T>& powers, const T* first, Index stride) {
      parallel_rows(device, in.B * powers.count, rows_per_task, [&](Index row) {
        const Index b = row / powers.count, c = row % powers.count;
        for (Index n = 0; n < in.N; ++n) {
          powers.fill(b * in.N + n, c, head_rows(first, stride, b, n, powers.count, in.N, in.K)[c], in.K);
        }
      });
    };
    fill_powers(query, in.query_bch, in.query_stride);
    fill_powers(key, in.key_bsh, in.key_stride);
    parallel_for(device, in.N, [&](Index n, Index) {
      for (Index k = 0; k < KP; ++k) padded_score_nk[n * KP + k] = k < in.K ? score_nk[n * in.K + k] : T(0);
      if (in.mask.distance_bias_nc) bias.fill(in, n);
    });
  }
};

// One head of one sequence, for its tasks.
template <class T>
struct Head {
  const Plan<T>& plan;
  const AttentionInputs<T>& in = plan.in;
  Index head, b = head / in.N, n = head % in.N;
  Index K = in.K, KP = plan.KP;
  Rows<const T> query_ck = rows(in.query_bch, in.query_stride, in.C), key_sk = rows(in.key_bsh, in.key_stride, in.S);
  Rows<const T> value_sk = rows(in.value_bsh, in.value_stride, in.S);
  Rows<const T> query_power_ck = plan.query.of_head(head), key_power_sk = plan.key.of_head(head);
  const T *query_far_c = plan.query.far_of_head(head), *key_far_s = plan.key.far_of_head(head);
  const T* score_k = plan.padded_score_nk + n * KP;
  const T* bias_x = plan.bias.of_head(n);
  const Token* mask_s = in.mask.mask_bs ? in.mask.mask_bs + b * in.S : nullptr;
  T score_sum = T(0);
  bool scores_far = false;  // true: too large to be multiplied by exponentials

  Head(const Plan<T>& call, Index number) : plan(call), head(number) {
    for (Index k = 0; k < K; ++k) {
      score_sum += score_k[k];
      scores_far = scores_far || !(magnitude<T>(score_k[k]) <= T(bahdanau_largest_score));
    }
  }

  template <class Element>
  Rows<Element> rows(Element* first, Index stride, Index count) const {
    return head_rows(first, stride, b, n, count, in.N, K);
  }
  bool is_far(Index s) const { return scores_far || key_far_s[s] != T(0); }
};

// sum_k score_k tanh(query_ck + key_k) for a SIMD vector of transposed queries, with 1 - 2 lack for tanh. Four
// fractions score / divisor share one division, by a common denominator.
template <int keys, class L, class T>
inline __attribute__((always_inline)) void near_logits(L (&logit)[keys], const T* query_power_kc,
                                                       const Rows<const T>& key_power_sk, const T* score_k, T score_sum,
                                                       Index KP) {
  const L limit = splat<L>(T(most));
  L sum[keys];
  unrolled<keys>([&](auto i) __attribute__((always_inline)) { sum[i] = splat<L>(T(0)); });
  for (Index k = 0; k < KP; k += at_once) {
    L query_power[at_once];
    unrolled<at_once>([&](auto j) __attribute__((always_inline)) {
      query_power[j] = load<L>(query_power_kc + (k + j) * group<T>);
    });
    unrolled<keys>([&](auto i) __attribute__((always_inline)) {
      const T* key_power_k = key_power_sk[i] + k;
      L divisor[at_once];
      unrolled<at_once>([&](auto j) __attribute__((always_inline)) {
        const L x = fused<L>(query_power[j], key_power_k[j], T(1));
        divisor[j] = x < limit ? x : limit;
      });
      const L low = divisor[0] * divisor[1], high = divisor[2] * divisor[3];
      const L low_numerator = fused<L>(score_k[k], divisor[1], score_k[k + 1] * divisor[0]);
      const L high_numerator = fused<L>(score_k[k + 2], divisor[3], score_k[k + 3] * divisor[2]);
      sum[i] += fused<L>(low_numerator, high, high_numerator * low) / (low * high);
    });
  }
  unrolled<keys>([&](auto i) __attribute__((always_inline)) { logit[i] = score_sum - T(2) * sum[i]; });
}

// The same with tanh.
template <class T>
Wide<T> far_logits(const Head<T>& head, const LaneRows<T>& query, Index s) {
  const T* key_k = head.key_sk[s];
  Wide<T> sum = splat<Wide<T>>(T(0));
  for (Index k = 0; k < head.K; ++k) {
    const Wide<T> tangent = hyperbolic_tangent<Wide<T>>(query.channel(k) + key_k[k]);
    sum = fused<Wide<T>>(head.score_k[k], tangent, sum);  // (bahdanau_attention.1)
  }
  return sum;
}

// A group of queries from `first` on, of `count` in the head: two SIMD vectors.
template <class T>
struct QueryGroup {
  Index first, count;
  T* power_kc;  // transposed, (KP, group)

  QueryGroup(const Head<T>& head, Index begin, T* scratch)
      : first(begin), count(min_of(group<T>, head.in.C - begin)), power_kc(scratch) {
    transpose_groups<T>(power_kc, head.query_power_ck.from(first), count, head.KP);
  }
};

// logit_sc[s * group + c] for keys [begin, end) and a group of queries, -infinity if c does not attend to s. Every
// logit depends on its own two rows alone.
template <class T>
void fill_logits(T* logit_sc, const Head<T>& head, const QueryGroup<T>& queries, Index begin, Index end) {
  using L = Wide<T>;
  constexpr Index width = lane_width<T>;
  const AttentionMask<T>& mask = head.in.mask;
  const L hidden = splat<L>(T(-infinity));
  for (Index half = 0; half < group<T>; half += width) {
    T* logit_s = logit_sc + half - begin * group<T>;
    const Index first = queries.first + half, count = min_of(width, queries.count - half);
    const Stretch seen = count > 0 ? mask.keys_of({first, first + count}, end) : Stretch{begin, begin};
    const Index seen_begin = min_of(max_of(seen.begin, begin), end), seen_end = max_of(seen.end, seen_begin);
    for (Index s = begin; s < seen_begin; ++s) store<L>(logit_s + s * group<T>, hidden);
    for (Index s = seen_end; s < end; ++s) store<L>(logit_s + s * group<T>, hidden);
    if (seen_begin == seen_end) continue;

    const auto compute = [&]<int keys>(Index s) {
      L logit[keys];
      near_logits(logit, queries.power_kc + half, head.key_power_sk.from(s), head.score_k, head.score_sum, head.KP);
      for (int i = 0; i < keys; ++i) store<L>(logit_s + (s + i) * group<T>, logit[i]);
    };
    constexpr int keys = 2;
    Index s = seen_begin;
    for (; s + keys <= seen_end; s += keys) compute.template operator()<keys>(s);
    for (; s < seen_end; ++s) compute.template operator()<1>(s);

    const LaneRows<T> query(head.query_ck, first, first + count);
    T far_c[width];
    bool any_far = false;
    for (Index c = 0; c < width; ++c) {
      far_c[c] = c < count ? head.query_far_c[first + c] : T(0);
      any_far = any_far || far_c[c] != T(0);
    }
    const auto near_lanes = less<L>(load<L>(far_c), T(0.5));
    for (Index key = seen_begin; key < seen_end; ++key) {
      const bool all_far = head.is_far(key);
      if (!all_far && !any_far) continue;
      const L logit = far_logits(head, query, key);
      T* at = logit_s + key * group<T>;
      store<L>(at, all_far ? logit : where<L>(near_lanes, load<L>(at), logit));
    }

    const Index at = first + mask.query_offset;  // position of the vector's first query
    for (Index key = seen_begin; key < seen_end; ++key) {
      L logit = load<L>(logit_s + key * group<T>);
      if (head.bias_x) logit += load<L>(head.bias_x + at - key);  // (bahdanau_attention.12)
      if (mask.causal) logit = splat<L>(T(key - at)) > lane_numbers<L>() ? hidden : logit;
      if (mask.window > 0) logit = splat<L>(T(key - at + mask.window)) > lane_numbers<L>() ? logit : hidden;
      if (head.mask_s && head.mask_s[key] == 0) logit = hidden;
      store<L>(logit_s + key * group<T>, logit);
    }
  }
}

// ---- Forward ----

template <class T>
Index forward_scratch_of(Index KP, Index S) {
  return group<T> * (2 * KP + S) + tile * KP + PairRows<T>::numbers(group<T>, KP);
}

// A group of queries with every key to which it attends.
template <class T>
void forward_group(const AttentionForward<T>& a, const Head<T>& head, Index first, T* scratch) {
  using L = Wide<T>;
  constexpr Index width = lane_width<T>;
  const Index K = head.K, KP = head.KP;
  const QueryGroup<T> queries(head, first, scratch);
  T* padded_sk = scratch + group<T> * KP;
  const Rows<T> of_tile_ck{padded_sk + tile * KP, KP};
  const PairRows<T> out(of_tile_ck[group<T>], group<T>, KP);
  T* power_sc = of_tile_ck[group<T>] + PairRows<T>::numbers(group<T>, KP);
  const Stretch seen = head.in.mask.keys_of({first, first + queries.count}, head.in.S);
  const Index keys = seen.empty() ? 0 : seen.end - seen.begin;
  if (keys > 0) fill_logits(power_sc, head, queries, seen.begin, seen.end);

  alignas(64) T max_c[group<T>], sum_c[group<T>];
  for (Index half = 0; half < group<T>; half += width) {
    L max = splat<L>(T(-infinity));
    for (Index s = 0; s < keys; ++s) max = larger(max, load<L>(power_sc + s * group<T> + half));
    // Before its first key a query has maximum -infinity; the base is then 0, because -inf - (-inf) is NaN.
    const L base = max == splat<L>(T(-infinity)) ? splat<L>(T(0)) : max;
    L sum = splat<L>(T(0)), low = sum;
    for (Index first_key = 0; first_key < keys; first_key += tile) {
      L of_tile = splat<L>(T(0));
      for (Index s = first_key; s < min_of(first_key + tile, keys); ++s) {
        T* power = power_sc + s * group<T> + half;
        const L x = exponential<L>(load<L>(power) - base);
        store<L>(power, x);
        of_tile += x;
      }
      add_compensated(sum, low, of_tile);  // (bahdanau_attention.2)
    }
    store<L>(max_c + half, max);
    store<L>(sum_c + half, sum + low);
  }

  out.clear(queries.count);
  for (Index first_key = 0; first_key < keys; first_key += tile) {
    const Index steps = min_of(tile, keys - first_key);
    multiply<T>({.out = of_tile_ck,
                 .a = {power_sc + first_key * group<T>, 1, group<T>},
                 .b = padded_rows<T>(head.value_sk.from(seen.begin + first_key), steps, K, false, padded_sk),
                 .rows = queries.count,
                 .lanes = padded<T>(K),
                 .steps = steps});
    for (Index c = 0; c < queries.count; ++c) {
      for (Index k = 0; k < padded<T>(K); k += width) out.add(c, k, load<L>(of_tile_ck[c] + k));
    }
  }
  const Rows<T> out_ck = head.rows(a.out_bch, 0, head.in.C).from(first);
  T* lse_c = a.lse_bnc + head.head * head.in.C + first;
  for (Index c = 0; c < queries.count; ++c) {
    const bool sees_none = sum_c[c] == T(0);  // otherwise the largest logit has added exp(0) = 1
    const T inverse = sees_none ? T(0) : T(1) / sum_c[c];
    for_lanes<T>(K, [&]<class M>(Index k) {  // (bahdanau_attention.3)
      store<M>(out_ck[c] + k, (load<M>(out.high[c] + k) + load<M>(out.low[c] + k)) * inverse);
    });
    lse_c[c] = sees_none ? T(infinity) : max_c[c] + natural_log<T>(sum_c[c]);  // (bahdanau_attention.4)
  }
}

template <class Device, class T>
void forward_by_lanes(Device& device, const AttentionForward<T>& a, const T* score_nk) {
  const auto& in = a.in;
  typename Device::Scope scratch(device.workspace);
  const Plan<T> plan(scratch, in, score_nk);
  const Index size = forward_scratch_of<T>(plan.KP, in.S), groups = blocks_of(in.C, group<T>);
  T* per_worker = scratch.template take<T>(device.threads.count() * size);
  plan.fill(device);
  parallel_for(device, in.B * in.N * groups, [&](Index task, Index worker) {
    // Order first, last, second, last but one, ...: in a causal mask later groups cost more, so workers get equal work.
    const Index i = task % groups, g = i % 2 == 0 ? i / 2 : groups - 1 - i / 2;
    forward_group(a, Head<T>(plan, task / groups), g * group<T>, per_worker + worker * size);
  });
}

// ---- Backward ----
//
// A task has some tiles of keys of one head: it computes their d_key and d_value, and its part of d_query and d_score.
// Per tile it first computes all logits, with queries as lanes, and d_logit for every pair. Then it recomputes every
// tanh with channels as lanes, because each tanh contributes to three sums.

template <class T>
struct BackwardSums {
  PairRows<T> d_query;  // C rows; from the keys of this task, without the factor score
  PairRows<T> d_score;  // one row: sum d_logit lack
};

template <class T>
Index backward_scratch_of(Index KP) {
  return group<T> * (3 * KP + 2 * tile) + tile * (2 * KP) + 2 * PairRows<T>::numbers(tile, KP);
}

// One SIMD vector of channels, for pairs of near rows: adds the contributions of four keys and the queries [from,
// count) of a group. d_logit_sc begins with the first of these keys.
template <class T>
inline __attribute__((always_inline)) void add_near_pairs(Wide<T> (&d_key)[at_once], Wide<T>& d_score,
                                                          Rows<T> d_query_ck, const Wide<T> (&key_power)[at_once],
                                                          Rows<const T> query_power_ck, const T* d_logit_sc, Index from,
                                                          Index count) {
  using L = Wide<T>;
  const L limit = splat<L>(T(most));
  for (Index c = from; c < count; ++c) {
    const L query_power = load<L>(query_power_ck[c]);
    L divisor[at_once], lack[at_once];
    unrolled<at_once>([&](auto j) __attribute__((always_inline)) {
      const L x = fused<L>(query_power, key_power[j], T(1));
      divisor[j] = x < limit ? x : limit;
    });
    // Four reciprocals by one division.
    const L low = divisor[0] * divisor[1], high = divisor[2] * divisor[3], inverse = T(1) / (low * high);
    const L low_inverse = inverse * high, high_inverse = inverse * low;
    lack[0] = low_inverse * divisor[1];
    lack[1] = low_inverse * divisor[0];
    lack[2] = high_inverse * divisor[3];
    lack[3] = high_inverse * divisor[2];
    L d_query = splat<L>(T(0));
    unrolled<at_once>([&](auto j) __attribute__((always_inline)) {
      const T d_logit = d_logit_sc[j * group<T> + c];
      const L slope = fused<L>(-lack[j], lack[j], lack[j]);  // a quarter of 1 - tanh^2
      d_query = fused<L>(d_logit, slope, d_query);
      d_key[j] = fused<L>(d_logit, slope, d_key[j]);
      d_score = fused<L>(d_logit, lack[j], d_score);
    });
    store<L>(d_query_ck[c], load<L>(d_query_ck[c]) + d_query);
  }
}

// A pair with a far row, computed with tanh.
template <class T>
void add_far_pair(const Head<T>& head, Index c, Index s, T d_logit, T* d_query_k, T* d_key_k, T* d_score_k) {
  const T *query_k = head.query_ck[c], *key_k = head.key_sk[s];
  for_lanes<T>(head.K, [=]<class L>(Index k) {
    const L hidden = hyperbolic_tangent<L>(load<L>(query_k + k) + load<L>(key_k + k));
    const L slope = T(0.25) * fused<L>(-hidden, hidden, T(1));
    store<L>(d_query_k + k, fused<L>(d_logit, slope, load<L>(d_query_k + k)));
    store<L>(d_key_k + k, fused<L>(d_logit, slope, load<L>(d_key_k + k)));
    store<L>(d_score_k + k, fused<L>(d_logit, fused<L>(T(-0.5), hidden, T(0.5)), load<L>(d_score_k + k)));
  });
}

// One tile of keys with every query that attends to one of them.
template <class T>
void backward_tile(const AttentionBackward<T>& a, const Head<T>& head, Index first_key, const BackwardSums<T>& sums,
                   const T* delta_c, T* scratch) {
  using L = Wide<T>;
  constexpr Index width = lane_width<T>;
  const Index K = head.K, KP = head.KP, lanes = padded<T>(K);
  const Index keys = min_of(tile, head.in.S - first_key), whole = blocks_of(keys, at_once) * at_once;
  const Rows<const T> d_out_ck = head.rows(a.d_out_bch, 0, head.in.C);
  const T* lse_c = a.lse_bnc + head.head * head.in.C;
  const AttentionMask<T>& mask = head.in.mask;
  T* query_scratch = scratch;
  T* d_out_kc = query_scratch + group<T> * KP;
  const Rows<T> padded_ck{d_out_kc + group<T> * KP, KP};
  T* weight_sc = padded_ck[group<T>];
  T* d_logit_sc = weight_sc + group<T> * tile;
  const Rows<T> of_group_sk{d_logit_sc + group<T> * tile, KP};
  const Rows<T> key_power_sk{of_group_sk[tile], KP};
  const PairRows<T> d_key(key_power_sk[tile], tile, KP);
  const PairRows<T> d_value(key_power_sk[tile] + PairRows<T>::numbers(tile, KP), tile, KP);
  d_key.clear(keys);
  d_value.clear(keys);
  // Missing and masked keys have exponentials of 0: four keys share a division, and a masked key must not change its
  // neighbours.
  for (Index s = 0; s < whole; ++s) {
    const bool real = s < keys && !(head.mask_s && head.mask_s[first_key + s] == 0);
    for (Index k = 0; k < KP; ++k) key_power_sk[s][k] = real ? head.key_power_sk[first_key + s][k] : T(0);
  }

  const Stretch seers = mask.queries_of({first_key, first_key + keys}, head.in.C);
  for (Index first = seers.begin / group<T> * group<T>; first < seers.end; first += group<T>) {
    const QueryGroup<T> queries(head, first, query_scratch);
    const Index count = queries.count;
    fill_logits(weight_sc, head, queries, first_key, first_key + keys);
    transpose_groups<T>(d_out_kc, d_out_ck.from(first), count, K);
    multiply<T>({.out = {d_logit_sc, group<T>},
                 .a = {head.value_sk[first_key], head.value_sk.stride, 1},
                 .b = {d_out_kc, group<T>},
                 .rows = keys,
                 .lanes = group<T>,
                 .steps = K});
    alignas(64) T lse[group<T>], delta[group<T>];
    for (Index c = 0; c < group<T>; ++c) {  // lanes past the last query have weight 0
      lse[c] = c < count ? lse_c[first + c] : T(infinity);
      delta[c] = c < count ? delta_c[first + c] : T(0);
    }
    for (Index s = 0; s < whole; ++s) {
      for (Index half = 0; half < group<T>; half += width) {
        T *weight_at = weight_sc + s * group<T> + half, *d_logit_at = d_logit_sc + s * group<T> + half;
        if (s >= keys) {
          store<L>(d_logit_at, splat<L>(T(0)));
          continue;
        }
        const L weight = exponential<L>(load<L>(weight_at) - load<L>(lse + half));  // (bahdanau_attention.5)
        store<L>(weight_at, weight);
        store<L>(d_logit_at, weight * (load<L>(d_logit_at) - load<L>(delta + half)));  // (bahdanau_attention.7)
      }
    }

    multiply<T>({.out = of_group_sk,  // (bahdanau_attention.10)
                 .a = {weight_sc, group<T>, 1},
                 .b = padded_rows<T>(d_out_ck.from(first), count, K, false, padded_ck.first),
                 .rows = keys,
                 .lanes = lanes,
                 .steps = count});
    for (Index s = 0; s < keys; ++s) {
      for (Index k = 0; k < lanes; k += width) d_value.add(s, k, load<L>(of_group_sk[s] + k));
    }

    // Pairs with a far row are computed separately; their d_logit is then set to 0 for the others.
    clear_rows(padded_ck, count, KP);  // now d_query of this tile
    clear_rows(of_group_sk, keys, KP);
    for (Index s = 0; s < keys; ++s) {
      const bool all_far = head.is_far(first_key + s);
      for (Index c = 0; c < count; ++c) {
        T& d_logit = d_logit_sc[s * group<T> + c];
        if (!all_far && head.query_far_c[first + c] == T(0)) continue;
        if (mask.sees(first + c, first_key + s)) {
          add_far_pair(head, first + c, first_key + s, d_logit, padded_ck[c], of_group_sk[s], sums.d_score.high[0]);
        }
        d_logit = T(0);
      }
    }

    for (Index s = 0; s < whole; s += at_once) {
      const Stretch seers_here = mask.queries_of({first_key + s, first_key + min_of(s + at_once, keys)}, head.in.C);
      const Index from = max_of(seers_here.begin - first, 0), end = min_of(seers_here.end - first, count);
      for (Index k = 0; k < KP; k += width) {
        L key_power[at_once], of_key[at_once], of_score = splat<L>(T(0));
        for (Index j = 0; j < at_once; ++j) {
          key_power[j] = load<L>(key_power_sk[s + j] + k);
          of_key[j] = splat<L>(T(0));
        }
        add_near_pairs<T>(of_key, of_score, {padded_ck.first + k, KP}, key_power, {head.query_power_ck[first] + k, KP},
                          d_logit_sc + s * group<T>, from, end);
        for (Index j = 0; j < at_once && s + j < keys; ++j) d_key.add(s + j, k, of_key[j]);
        sums.d_score.add(0, k, of_score);
      }
    }
    for (Index s = 0; s < keys; ++s) {
      for (Index k = 0; k < KP; k += width) d_key.add(s, k, load<L>(of_group_sk[s] + k));
    }
    for (Index c = 0; c < count; ++c) {
      for (Index k = 0; k < KP; k += width) sums.d_query.add(first + c, k, load<L>(padded_ck[c] + k));
    }
  }

  const Rows<T> d_key_sk = head.rows(a.d_key_bsh, a.d_key_stride, head.in.S).from(first_key);
  const Rows<T> d_value_sk = head.rows(a.d_value_bsh, a.d_value_stride, head.in.S).from(first_key);
  for (Index s = 0; s < keys; ++s) {
    for_lanes<T>(K, [&]<class M>(Index k) {
      const M sum = load<M>(d_key.high[s] + k) + load<M>(d_key.low[s] + k);
      store<M>(d_key_sk[s] + k, T(4) * load<M>(head.score_k + k) * sum);  // (bahdanau_attention.9)
      store<M>(d_value_sk[s] + k, load<M>(d_value.high[s] + k) + load<M>(d_value.low[s] + k));
    });
  }
}

template <class Device, class T>
void backward_by_lanes(Device& device, const AttentionBackward<T>& a, const T* score_nk, Accum<T>* d_score_nk) {
  const auto& in = a.in;
  const Index heads = in.B * in.N, tiles = blocks_of(in.S, tile), query_tiles = blocks_of(in.C, tile);
  if (heads == 0) return;
  // With few heads, each head has several tasks; this depends on the shape alone.
  const Index pieces = pieces_of(heads, tiles);
  typename Device::Scope scratch(device.workspace);
  const Plan<T> plan(scratch, in, score_nk);
  const Index KP = plan.KP, size = backward_scratch_of<T>(KP);
  const Index query_numbers = PairRows<T>::numbers(in.C, KP), score_numbers = PairRows<T>::numbers(1, KP);
  T* delta_bnc = scratch.template take<T>(heads * in.C);
  T* d_query_bnp = scratch.template take<T>(heads * pieces * query_numbers);  // p = piece
  T* d_score_bnp = scratch.template take<T>(heads * pieces * score_numbers);
  T* per_worker = scratch.template take<T>(device.threads.count() * size);
  const auto sums_of = [=](Index task) {
    return BackwardSums<T>{PairRows<T>(d_query_bnp + task * query_numbers, in.C, KP),
                           PairRows<T>(d_score_bnp + task * score_numbers, 1, KP)};
  };
  plan.fill(device);
  parallel_for(device, heads * query_tiles, [&](Index task, Index) {
    const Head<T> head(plan, task / query_tiles);
    const Index first = task % query_tiles * tile, end = min_of(first + tile, in.C);
    sum_delta<T>(delta_bnc + head.head * in.C, head.rows(a.d_out_bch, 0, in.C),  // (bahdanau_attention.6)
                 head.rows(a.out_bch, 0, in.C), first, end, in.K);
  });
  parallel_for(device, heads * pieces, [&](Index task, Index worker) {
    const Head<T> head(plan, task / pieces);
    const BackwardSums<T> sums = sums_of(task);
    sums.d_query.clear(in.C);
    sums.d_score.clear(1);
    for (Index t = task % pieces; t < tiles; t += pieces) {
      backward_tile(a, head, t * tile, sums, delta_bnc + head.head * in.C, per_worker + worker * size);
    }
  });

  parallel_for(device, heads * query_tiles, [&](Index task, Index) {
    const Head<T> head(plan, task / query_tiles);
    const Rows<T> d_query_ck = head.rows(a.d_query_bch, a.d_query_stride, in.C);
    const Index first = task % query_tiles * tile;
    for (Index c = first; c < min_of(first + tile, in.C); ++c) {
      for_lanes<T>(in.K, [&]<class L>(Index k) {
        L sum = splat<L>(T(0));
        for (Index piece = 0; piece < pieces; ++piece) {
          const PairRows<T> part = sums_of(head.head * pieces + piece).d_query;
          sum += load<L>(part.high[c] + k) + load<L>(part.low[c] + k);
        }
        store<L>(d_query_ck[c] + k, T(4) * load<L>(head.score_k + k) * sum);  // (bahdanau_attention.8)
      });
    }
  });
  // The d_logit of a row sum to 0, so only the part -2 lack of tanh = 1 - 2 lack counts.
  parallel_for(device, in.N, [&](Index n, Index) {
    for_lanes<T>(in.K, [&]<class L>(Index k) {
      L sum = splat<L>(T(0)), low = sum;
      for (Index b = 0; b < in.B; ++b) {
        for (Index piece = 0; piece < pieces; ++piece) {
          const PairRows<T> part = sums_of((b * in.N + n) * pieces + piece).d_score;
          add_compensated<L>(sum, low, load<L>(part.high[0] + k) + load<L>(part.low[0] + k));
        }
      }
      T* d_score_k = d_score_nk + n * in.K + k;
      store<L>(d_score_k, load<L>(d_score_k) - T(2) * (sum + low));  // (bahdanau_attention.11)
    });
  });
}

}  // namespace

template <class Device, class T>
void bahdanau_attention_forward(Device& device, const AttentionForward<T>& a, const T* score_nk) {
  if constexpr (is_float<T>) {
    forward_by_lanes(device, a, score_nk);
  } else if constexpr (is_narrow<T>) {
    in_float(device, [&](auto& wide) {
      const float* wide_score_nk = wide.in(score_nk, 1, a.in.N * a.in.K);
      bahdanau_attention_forward<Device, float>(device, widened(wide, a), wide_score_nk);
    });
  } else {
    on_one_thread(device, [&] {
      PlainDevice plain;
      bahdanau_attention_forward(plain, a, score_nk);
    });
  }
}

template <class Device, class T>
void bahdanau_attention_backward(Device& device, const AttentionBackward<T>& a, const T* score_nk,
                                 Accum<T>* d_score_nk) {
  if constexpr (is_float<T>) {
    backward_by_lanes(device, a, score_nk, d_score_nk);
  } else if constexpr (is_narrow<T>) {
    in_float(device, [&](auto& wide) {
      const float* wide_score_nk = wide.in(score_nk, 1, a.in.N * a.in.K);
      bahdanau_attention_backward<Device, float>(device, widened(wide, a), wide_score_nk, d_score_nk);
    });
  } else {
    on_one_thread(device, [&] {
      PlainDevice plain;
      bahdanau_attention_backward(plain, a, score_nk, d_score_nk);
    });
  }
}

ABH_INSTANTIATE(Cpu, bahdanau_attention_forward, bahdanau_attention_backward)

}  // namespace abh
