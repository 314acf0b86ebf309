#include "layers/dot_product_attention.hpp"

#include "cpu/lanes.hpp"
#include "cpu/math.hpp"

namespace abh {

namespace {

constexpr double infinity = __builtin_inf();

// Rows of one head of one sequence: row c holds K channels.
template <class T>
struct Rows {
  T* first;
  Index stride;
  T* operator[](Index c) const { return first + c * stride; }
};

// Where head n of sequence b begins in an array of rows.
template <class T>
Rows<T> head_rows(T* first, Index stride, Index b, Index n, Index C, Index N, Index K) {
  const Index step = stride ? stride : N * K;
  return {first + b * C * step + n * K, step};
}

template <class T>
T score_scale(Index K) {
  return T(1) / square_root(T(K));
}

// ---- Row by row: the equations as they stand, for double and Dual ----

template <class T>
T dot_product(const T* x_k, const T* y_k, Index K) {
  T sum = T(0);
  for (Index k = 0; k < K; ++k) sum += x_k[k] * y_k[k];
  return sum;
}

// One head of one sequence. The running maximum only ever grows; when it does, what was summed so far shrinks with it.
template <class T>
void forward_by_rows(Rows<T> out_ck, Accum<T>* lse_c, Rows<const T> query_ck, Rows<const T> key_ck,
                     Rows<const T> value_ck, const Token* mask_c, bool causal, Index C, Index K) {
  const T scale = score_scale<T>(K);
  for (Index query = 0; query < C; ++query) {
    T* out_k = out_ck[query];
    for (Index k = 0; k < K; ++k) out_k[k] = T(0);
    T max = T(-infinity);
    T sum = T(0);
    const Index keys = causal ? query + 1 : C;
    for (Index key = 0; key < keys; ++key) {
      if (mask_c && mask_c[key] == 0) continue;
      const T score = scale * dot_product(query_ck[query], key_ck[key], K);  // (dot_product_attention.1)
      const T new_max = larger(max, score);
      const T shrink = exponential(max - new_max);
      const T power = exponential(score - new_max);
      max = new_max;
      sum = sum * shrink + power;  // (dot_product_attention.2)
      for (Index k = 0; k < K; ++k) out_k[k] = out_k[k] * shrink + power * value_ck[key][k];
    }
    const bool sees_none = sum == T(0);
    for (Index k = 0; k < K; ++k) out_k[k] = sees_none ? T(0) : out_k[k] / sum;  // (dot_product_attention.3)
    lse_c[query] = sees_none ? T(infinity) : max + natural_log(sum);             // (dot_product_attention.4)
  }
}

template <class T>
void backward_by_rows(const DotProductAttentionBackward<T>& a, Index b, Index n) {
  const auto rows = [&](auto* first, Index stride) { return head_rows(first, stride, b, n, a.C, a.N, a.K); };
  const Rows<const T> query_ck = rows(a.query_bch, a.query_stride);
  const Rows<const T> key_ck = rows(a.key_bch, a.key_stride);
  const Rows<const T> value_ck = rows(a.value_bch, a.value_stride);
  const Rows<const T> out_ck = rows(a.out_bch, 0);
  const Rows<const T> d_out_ck = rows(a.d_out_bch, 0);
  const Rows<T> d_query_ck = rows(a.d_query_bch, a.d_query_stride);
  const Rows<T> d_key_ck = rows(a.d_key_bch, a.d_key_stride);
  const Rows<T> d_value_ck = rows(a.d_value_bch, a.d_value_stride);
  const Accum<T>* lse_c = a.lse_bnc + (b * a.N + n) * a.C;
  const Token* mask_c = a.mask_bc ? a.mask_bc + b * a.C : nullptr;
  const T scale = score_scale<T>(a.K);

  for (Index c = 0; c < a.C; ++c) {
    for (Index k = 0; k < a.K; ++k) d_query_ck[c][k] = d_key_ck[c][k] = d_value_ck[c][k] = T(0);
  }
  for (Index query = 0; query < a.C; ++query) {
    const T delta = dot_product(d_out_ck[query], out_ck[query], a.K);  // (dot_product_attention.6)
    const Index keys = a.causal ? query + 1 : a.C;
    for (Index key = 0; key < keys; ++key) {
      if (mask_c && mask_c[key] == 0) continue;
      const T score = scale * dot_product(query_ck[query], key_ck[key], a.K);
      const T weight = exponential(score - lse_c[query]);  // (dot_product_attention.5)
      const T d_score =
          weight * (dot_product(d_out_ck[query], value_ck[key], a.K) - delta);  // (dot_product_attention.7)
      for (Index k = 0; k < a.K; ++k) {
        d_query_ck[query][k] += scale * d_score * key_ck[key][k];  // (dot_product_attention.8)
        d_key_ck[key][k] += scale * d_score * query_ck[query][k];  // (dot_product_attention.9)
        d_value_ck[key][k] += weight * d_out_ck[query][k];         // (dot_product_attention.10)
      }
    }
  }
}

// ---- In tiles: the same for float, over the lanes of this instruction set ----
//
// All products have one form: lanes run over a group of queries (forward) or keys (backward), rows of a plain array are
// read number by number and broadcast. So only one operand of each product is ever transposed, once a task.

// Queries or keys in a tile: a tile of scores, keys and values stays in the first two caches.
constexpr Index tile = 64;

// Two lane vectors: what the inner loop computes at once, and the steps in which a triangle is cut.
template <class T>
constexpr Index group = 2 * lane_width<T>;

// Rows that the inner loop computes at once: rows x 2 accumulators, two loads and a broadcast must fit the registers.
constexpr int rows_at_once = ABH_LANE_BYTES == 64 ? 8 : 6;

// A matrix read number by number: element (row, step) stands at first[row * row_stride + step * step_stride].
template <class T>
struct Broadcast {
  const T* first;
  Index row_stride, step_stride;
};

// out[row][lane] (+)= sum_step a[row][step] b[step][lane] for `rows` rows and one group of lanes.
template <bool add, int rows, class T>
inline void multiply_rows(T* out, Index out_stride, Broadcast<T> a, const T* b, Index b_stride, Index steps) {
  using L = Wide<T>;
  constexpr Index half = lane_width<T>;
  L sum[rows][2];
  for (int row = 0; row < rows; ++row) {
    sum[row][0] = add ? load<L>(out + row * out_stride) : splat<L>(T(0));
    sum[row][1] = add ? load<L>(out + row * out_stride + half) : splat<L>(T(0));
  }
  for (Index step = 0; step < steps; ++step) {
    const L b0 = load<L>(b + step * b_stride);
    const L b1 = load<L>(b + step * b_stride + half);
    const T* a_row = a.first + step * a.step_stride;
    for (int row = 0; row < rows; ++row) {
      const T x = a_row[row * a.row_stride];
      sum[row][0] += x * b0;
      sum[row][1] += x * b1;
    }
  }
  for (int row = 0; row < rows; ++row) {
    store<L>(out + row * out_stride, sum[row][0]);
    store<L>(out + row * out_stride + half, sum[row][1]);
  }
}

template <bool add, class T>
void multiply(T* out, Index out_stride, Broadcast<T> a, const T* b, Index b_stride, Index rows, Index steps) {
  Index row = 0;
  const auto advance = [&]<int count>() {
    multiply_rows<add, count>(out + row * out_stride, out_stride,
                              {a.first + row * a.row_stride, a.row_stride, a.step_stride}, b, b_stride, steps);
    row += count;
  };
  while (row + rows_at_once <= rows) advance.template operator()<rows_at_once>();
  while (row + 2 <= rows) advance.template operator()<2>();
  if (row < rows) advance.template operator()<1>();
}

// out_kc: K x tile, the transpose of `count` rows; 0 beyond them.
template <class T>
void transpose_in(T* out_kc, Rows<const T> in_ck, Index count, Index K) {
  for (Index c = 0; c < count; ++c) {
    for (Index k = 0; k < K; ++k) out_kc[k * tile + c] = in_ck[c][k];
  }
  for (Index c = count; c < tile; ++c) {
    for (Index k = 0; k < K; ++k) out_kc[k * tile + c] = T(0);
  }
}

template <class T>
void transpose_out(Rows<T> out_ck, const T* in_kc, Index count, Index K) {
  for (Index c = 0; c < count; ++c) {
    for (Index k = 0; k < K; ++k) out_ck[c][k] = in_kc[k * tile + c];
  }
}

// 0, 1, 2, ...
template <class L>
L lane_numbers() {
  ScalarOf<L> numbers[width_of<L>];
  for (int i = 0; i < width_of<L>; ++i) numbers[i] = ScalarOf<L>(i);
  return load<L>(numbers);
}

Index smaller(Index a, Index b) { return a < b ? a : b; }

Index tiles_of(Index rows) { return (rows + tile - 1) / tile; }

// Numbers of scratch memory that one task of the forward pass needs.
Index forward_scratch(Index K) { return 2 * K * tile; }

// One tile of queries against every key it sees. State per query, a lane each: max, sum and K x tile outputs not yet
// divided by the sum.
template <class T>
void forward_tile(const DotProductAttentionForward<T>& a, Index b, Index n, Index first_query, T* scratch) {
  using L = Wide<T>;
  const Index K = a.K;
  const auto rows = [&](auto* first, Index stride) { return head_rows(first, stride, b, n, a.C, a.N, K); };
  const Rows<const T> query_ck = rows(a.query_bch, a.query_stride);
  const Rows<const T> key_ck = rows(a.key_bch, a.key_stride);
  const Rows<const T> value_ck = rows(a.value_bch, a.value_stride);
  const Rows<T> out_ck = rows(a.out_bch, 0);
  const Index queries = smaller(tile, a.C - first_query);
  const T scale = score_scale<T>(K);

  T* query_kc = scratch;
  T* out_kc = scratch + K * tile;
  alignas(64) T max_c[tile], sum_c[tile];
  alignas(64) T weight_cc[tile * group<T>];  // a key tile x a group of queries: scores, then weights
  transpose_in<T>(query_kc, {query_ck[first_query], query_ck.stride}, queries, K);
  for (Index i = 0; i < K * tile; ++i) out_kc[i] = T(0);
  for (Index c = 0; c < tile; ++c) {
    max_c[c] = T(-infinity);
    sum_c[c] = T(0);
  }

  const Index end = a.causal ? first_query + queries : a.C;
  for (Index first_key = 0; first_key < end; first_key += tile) {
    const bool diagonal = a.causal && first_key == first_query;
    const Token* mask_c = a.mask_bc ? a.mask_bc + b * a.C + first_key : nullptr;
    for (Index g = 0; g < queries; g += group<T>) {
      // On the diagonal, keys behind the last query of the group are left out; behind each query, they are masked.
      const Index keys = smaller(smaller(tile, a.C - first_key), diagonal ? g + group<T> : tile);
      multiply<false, T>(weight_cc, group<T>, {key_ck[first_key], key_ck.stride, 1}, query_kc + g, tile, keys, K);

      for (Index half = 0; half < group<T>; half += lane_width<T>) {
        T* weight_c = weight_cc + half;
        const L query = lane_numbers<L>() + T(g + half);
        const L old_max = load<L>(max_c + g + half);
        L max = old_max;
        for (Index key = 0; key < keys; ++key) {
          const L hidden = splat<L>(T(-infinity));
          L score = load<L>(weight_c + key * group<T>) * scale;  // (dot_product_attention.1)
          if (mask_c && mask_c[key] == 0) score = hidden;
          if (diagonal) score = splat<L>(T(key)) > query ? hidden : score;
          store<L>(weight_c + key * group<T>, score);
          max = larger(max, score);
        }
        // While a query has seen nothing its maximum is -infinity; 0 in its place keeps -inf - (-inf) out.
        const L base = max == splat<L>(T(-infinity)) ? splat<L>(T(0)) : max;
        const L shrink = exponential<L>(old_max - base);
        L sum = splat<L>(T(0));
        for (Index key = 0; key < keys; ++key) {
          const L power = exponential<L>(load<L>(weight_c + key * group<T>) - base);
          sum += power;
          store<L>(weight_c + key * group<T>, power);
        }
        store<L>(max_c + g + half, max);
        store<L>(sum_c + g + half, load<L>(sum_c + g + half) * shrink + sum);  // (dot_product_attention.2)
        for (Index k = 0; k < K; ++k) {
          T* out_c = out_kc + k * tile + g + half;
          store<L>(out_c, load<L>(out_c) * shrink);
        }
      }
      multiply<true, T>(out_kc + g, tile, {value_ck[first_key], 1, value_ck.stride}, weight_cc, group<T>, K, keys);
    }
  }

  Accum<T>* lse_c = a.lse_bnc + (b * a.N + n) * a.C + first_query;
  for (Index g = 0; g < queries; g += lane_width<T>) {
    const L sum = load<L>(sum_c + g);
    const L none = splat<L>(T(0));
    const L inverse = sum == none ? none : T(1) / sum;
    for (Index k = 0; k < K; ++k) {
      store<L>(out_kc + k * tile + g, load<L>(out_kc + k * tile + g) * inverse);  // (dot_product_attention.3)
    }
    store<L>(max_c + g, sum == none ? splat<L>(T(infinity))
                                    : load<L>(max_c + g) + natural_log<L>(sum));  // (dot_product_attention.4)
  }
  transpose_out<T>({out_ck[first_query], out_ck.stride}, out_kc, queries, K);
  for (Index c = 0; c < queries; ++c) lse_c[c] = max_c[c];
}

// Channels rounded up to whole groups: the width of rows whose channels are lanes.
template <class T>
Index padded(Index K) {
  return (K + group<T> - 1) / group<T> * group<T>;
}

// Numbers of scratch memory that one task of the backward pass needs.
template <class T>
Index backward_scratch(Index K) {
  return (4 * K + padded<T>(K)) * tile;
}

// One tile of keys against every query that sees it: finishes d_key and d_value of the tile, adds its part to
// d_query_ck (C rows of padded(K) channels).
template <class T>
void backward_tile(const DotProductAttentionBackward<T>& a, Index b, Index n, Index first_key, T* d_query_ck,
                   const T* delta_c, T* scratch) {
  using L = Wide<T>;
  const Index K = a.K;
  const Index padded_K = padded<T>(K);
  const auto rows = [&](auto* first, Index stride) { return head_rows(first, stride, b, n, a.C, a.N, K); };
  const Rows<const T> query_ck = rows(a.query_bch, a.query_stride);
  const Rows<const T> key_ck = rows(a.key_bch, a.key_stride);
  const Rows<const T> value_ck = rows(a.value_bch, a.value_stride);
  const Rows<const T> d_out_ck = rows(a.d_out_bch, 0);
  const Rows<T> d_key_ck = rows(a.d_key_bch, a.d_key_stride);
  const Rows<T> d_value_ck = rows(a.d_value_bch, a.d_value_stride);
  const Accum<T>* lse_c = a.lse_bnc + (b * a.N + n) * a.C;
  const Index keys = smaller(tile, a.C - first_key);
  const T scale = score_scale<T>(K);

  T* key_kc = scratch;
  T* value_kc = key_kc + K * tile;
  T* d_key_kc = value_kc + K * tile;
  T* d_value_kc = d_key_kc + K * tile;
  T* key_padded_ck = d_value_kc + K * tile;
  alignas(64) T hide_c[tile];                                             // added to the scores of a key
  alignas(64) T weight_cc[tile * group<T>], d_score_cc[tile * group<T>];  // a query tile x a group of keys
  transpose_in<T>(key_kc, {key_ck[first_key], key_ck.stride}, keys, K);
  transpose_in<T>(value_kc, {value_ck[first_key], value_ck.stride}, keys, K);
  for (Index i = 0; i < K * tile; ++i) d_key_kc[i] = d_value_kc[i] = T(0);
  for (Index c = 0; c < keys; ++c) {
    for (Index k = 0; k < padded_K; ++k) key_padded_ck[c * padded_K + k] = k < K ? key_ck[first_key + c][k] : T(0);
  }
  for (Index c = 0; c < tile; ++c) {
    const bool seen = c < keys && !(a.mask_bc && a.mask_bc[b * a.C + first_key + c] == 0);
    hide_c[c] = seen ? T(0) : T(-infinity);
  }

  for (Index first_query = a.causal ? first_key : 0; first_query < a.C; first_query += tile) {
    const bool diagonal = a.causal && first_query == first_key;
    const Index end = smaller(tile, a.C - first_query);
    for (Index g = 0; g < keys; g += group<T>) {
      // On the diagonal, queries before the first key of the group are left out.
      const Index begin = first_query + (diagonal ? g : 0);
      const Index queries = first_query + end - begin;
      const Broadcast<T> query{query_ck[begin], query_ck.stride, 1}, d_out{d_out_ck[begin], d_out_ck.stride, 1};
      const Broadcast<T> query_kc{query.first, 1, query.row_stride}, d_out_kc{d_out.first, 1, d_out.row_stride};
      multiply<false, T>(weight_cc, group<T>, query, key_kc + g, tile, queries, K);
      multiply<false, T>(d_score_cc, group<T>, d_out, value_kc + g, tile, queries, K);

      for (Index half = 0; half < group<T>; half += lane_width<T>) {
        const L key = lane_numbers<L>() + T(half);
        const L hide = load<L>(hide_c + g + half);
        for (Index c = 0; c < queries; ++c) {
          T* weight_c = weight_cc + c * group<T> + half;
          T* d_score_c = d_score_cc + c * group<T> + half;
          L score = load<L>(weight_c) * scale + hide;
          if (diagonal) score = key > splat<L>(T(c)) ? splat<L>(T(-infinity)) : score;
          const L weight = exponential<L>(score - lse_c[begin + c]);             // (dot_product_attention.5)
          const L d_score = weight * (load<L>(d_score_c) - delta_c[begin + c]);  // (dot_product_attention.7)
          store<L>(weight_c, weight);
          store<L>(d_score_c, d_score * scale);
        }
      }
      multiply<true, T>(d_value_kc + g, tile, d_out_kc, weight_cc, group<T>, K, queries);  // (dot_product_attention.10)
      multiply<true, T>(d_key_kc + g, tile, query_kc, d_score_cc, group<T>, K, queries);   // (dot_product_attention.9)
      for (Index k = 0; k < padded_K; k += group<T>) {                                     // (dot_product_attention.8)
        multiply<true, T>(d_query_ck + begin * padded_K + k, padded_K, {d_score_cc, group<T>, 1},
                          key_padded_ck + g * padded_K + k, padded_K, queries, smaller(group<T>, keys - g));
      }
    }
  }
  transpose_out<T>({d_key_ck[first_key], d_key_ck.stride}, d_key_kc, keys, K);
  transpose_out<T>({d_value_ck[first_key], d_value_ck.stride}, d_value_kc, keys, K);
}

// sum + x y, rounded as multiply() rounds it: once where the machine can. Said aloud, because a compiler that finds a
// way to vectorise the products before they are added would round them twice.
template <class T>
T multiply_add(T x, T y, T sum) {
#if defined(__FMA__) || defined(__FP_FAST_FMAF)
  if constexpr (sizeof(T) == sizeof(float)) return __builtin_fmaf(x, y, sum);
#endif
  return sum + x * y;
}

// out_c[i] = x . y of row c + i. Summed channel by channel, as multiply() sums the products with the values: where one
// weight is 1, out is that value, delta is that product to the last bit, and d_score is exactly 0.
template <int rows, class T>
void row_products(T* out_c, Rows<const T> x_ck, Rows<const T> y_ck, Index c, Index K) {
  T sum[rows] = {};
  for (Index k = 0; k < K; ++k) {
    for (int row = 0; row < rows; ++row) sum[row] = multiply_add(x_ck[c + row][k], y_ck[c + row][k], sum[row]);
  }
  for (int row = 0; row < rows; ++row) out_c[row] = sum[row];
}

// Tasks that a backward pass should have at least, where there are so many tiles. A head's key tiles are dealt out to
// several tasks, each with its own d_query, only when there are few heads: it depends on the shape alone.
constexpr Index enough_tasks = 16;

Index pieces_of(Index heads, Index tiles) {
  const Index wanted = (enough_tasks + heads - 1) / heads;
  return smaller(wanted, tiles);
}

template <class Device, class T>
void backward_in_tiles(Device& device, const DotProductAttentionBackward<T>& a) {
  const Index heads = a.B * a.N;
  const Index tiles = tiles_of(a.C);
  if (heads == 0 || tiles == 0) return;
  const Index pieces = pieces_of(heads, tiles);
  const Index padded_K = padded<T>(a.K);
  typename Device::Scope scratch(device.workspace);
  T* delta_bnc = scratch.template take<T>(heads * a.C);
  T* d_query_pbnck = scratch.template take<T>(pieces * heads * a.C * padded_K);  // p: piece
  T* per_worker = scratch.template take<T>(device.threads.count() * backward_scratch<T>(a.K));

  parallel_for(device, a.B * tiles, [&](Index task, Index) {
    const Index b = task / tiles;
    const Index first = task % tiles * tile;
    for (Index n = 0; n < a.N; ++n) {
      const Rows<const T> out_ck = head_rows(a.out_bch, 0, b, n, a.C, a.N, a.K);
      const Rows<const T> d_out_ck = head_rows(a.d_out_bch, 0, b, n, a.C, a.N, a.K);
      T* delta_c = delta_bnc + (b * a.N + n) * a.C;
      const Index end = smaller(first + tile, a.C);
      Index c = first;
      for (; c + 8 <= end; c += 8) row_products<8>(delta_c + c, d_out_ck, out_ck, c, a.K);  // (dot_product_attention.6)
      for (; c < end; ++c) row_products<1>(delta_c + c, d_out_ck, out_ck, c, a.K);
    }
  });

  parallel_for(device, pieces * heads, [&](Index task, Index worker) {
    const Index head = task / pieces;
    const Index piece = task % pieces;
    T* d_query_ck = d_query_pbnck + (piece * heads + head) * a.C * padded_K;
    for (Index i = 0; i < a.C * padded_K; ++i) d_query_ck[i] = T(0);
    for (Index t = piece; t < tiles; t += pieces) {
      backward_tile<T>(a, head / a.N, head % a.N, t * tile, d_query_ck, delta_bnc + head * a.C,
                       per_worker + worker * backward_scratch<T>(a.K));
    }
  });

  parallel_for(device, heads * tiles, [&](Index task, Index) {
    const Index head = task / tiles;
    const Index first = task % tiles * tile;
    const Rows<T> d_query_ck = head_rows(a.d_query_bch, a.d_query_stride, head / a.N, head % a.N, a.C, a.N, a.K);
    for (Index c = first; c < smaller(first + tile, a.C); ++c) {
      for_lanes<T>(a.K, [&]<class L>(Index k) {
        L sum = splat<L>(T(0));
        for (Index piece = 0; piece < pieces; ++piece) {
          sum += load<L>(d_query_pbnck + ((piece * heads + head) * a.C + c) * padded_K + k);
        }
        store<L>(d_query_ck[c] + k, sum);
      });
    }
  });
}

}  // namespace

template <class Device, class T>
void dot_product_attention_forward(Device& device, const DotProductAttentionForward<T>& a) {
  if constexpr (is_float<T>) {
    const Index tiles = tiles_of(a.C);
    typename Device::Scope scratch(device.workspace);
    T* per_worker = scratch.template take<T>(device.threads.count() * forward_scratch(a.K));
    parallel_for(device, a.B * a.N * tiles, [&](Index task, Index worker) {
      const Index head = task / tiles;
      // First, last, second, last but one, ...: a causal tile costs more the later it is, and workers get neighbours.
      const Index i = task % tiles;
      const Index t = i % 2 == 0 ? i / 2 : tiles - 1 - i / 2;
      forward_tile<T>(a, head / a.N, head % a.N, t * tile, per_worker + worker * forward_scratch(a.K));
    });
  } else {
    parallel_for(device, a.B * a.N, [&](Index task, Index) {
      const Index b = task / a.N;
      const Index n = task % a.N;
      const auto rows = [&](auto* first, Index stride) { return head_rows(first, stride, b, n, a.C, a.N, a.K); };
      forward_by_rows<T>(rows(a.out_bch, 0), a.lse_bnc + task * a.C, rows(a.query_bch, a.query_stride),
                         rows(a.key_bch, a.key_stride), rows(a.value_bch, a.value_stride),
                         a.mask_bc ? a.mask_bc + b * a.C : nullptr, a.causal, a.C, a.K);
    });
  }
}

template <class Device, class T>
void dot_product_attention_backward(Device& device, const DotProductAttentionBackward<T>& a) {
  if constexpr (is_float<T>) {
    backward_in_tiles(device, a);
  } else {
    parallel_for(device, a.B * a.N, [&](Index task, Index) { backward_by_rows<T>(a, task / a.N, task % a.N); });
  }
}

template <class Device, class T>
void dot_product_attention_step(Device& device, const DotProductAttentionStep<T>& a) {
  const Index H = a.N * a.K;
  const T scale = score_scale<T>(a.K);
  typename Device::Scope scratch(device.workspace);
  T* score_nc = scratch.template take<T>(a.N * a.length);
  parallel_for(device, a.N, [&](Index n, Index) {
    T* score_c = score_nc + n * a.length;
    T max = T(-infinity);
    for (Index c = 0; c < a.length; ++c) {
      RowSum<T> score;
      for_lanes<T>(a.K, [&]<class L>(Index k) {
        score += load<L>(a.query_h + n * a.K + k) * load<L>(a.key_ch + c * H + n * a.K + k);
      });
      score_c[c] = score.total() * scale;  // (dot_product_attention.1)
      max = larger(max, score_c[c]);
    }
    RowSum<T> sum;  // (dot_product_attention.2)
    for_lanes<T>(a.length, [&]<class L>(Index c) {
      const L power = exponential<L>(load<L>(score_c + c) - max);
      sum += power;
      store<L>(score_c + c, power);
    });
    const T inverse = a.length == 0 ? T(0) : T(1) / sum.total();
    for_lanes<T>(a.K, [&]<class L>(Index k) {  // (dot_product_attention.3)
      L out = splat<L>(T(0));
      for (Index c = 0; c < a.length; ++c) out += score_c[c] * load<L>(a.value_ch + c * H + n * a.K + k);
      store<L>(a.out_h + n * a.K + k, out * inverse);
    });
  });
}

#define INSTANTIATE(T)                                                                              \
  template decltype(dot_product_attention_forward<Cpu, T>) dot_product_attention_forward<Cpu, T>;   \
  template decltype(dot_product_attention_backward<Cpu, T>) dot_product_attention_backward<Cpu, T>; \
  template decltype(dot_product_attention_step<Cpu, T>) dot_product_attention_step<Cpu, T>;
ABH_FOR_EACH_SCALAR(INSTANTIATE)

}  // namespace abh
