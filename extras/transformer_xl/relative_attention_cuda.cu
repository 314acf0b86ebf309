#include "cuda/attention_rows.hpp"
#include "cuda/kernel.hpp"
#include "cuda/partial_sums.hpp"
#include "extras/transformer_xl/relative_attention.hpp"

namespace abh {

namespace {

// One warp per row (cuda/attention_rows.hpp): a query in forward and for d_query, a key for d_key and d_value, a
// distance for d_rho. The 8 rows of a block and the 32 rows of a tile combine to at most 39 consecutive distances (or,
// if rows are distances, keys): the pair of warp w and lane l finds its own by w and l. Each of the three backward
// passes recomputes the scores.
constexpr int slab = 32, between = side + most_warps;

// Rows are padded by one number, so that lanes read adjacent rows without bank conflicts.
template <int rows>
using Slab = float[rows][slab + 1];

// Values passed from lanes of rows to lanes of channels, one per pair of a warp.
using OfPairs = float[most_warps][side];

// Head of a block, for both passes.
template <class T>
struct Head {
  const AttentionInputs<T>& in;
  const RelativeTerms<T>& terms;
  const AttentionPlace& at;
  float scale;
  int K = int(in.K), H = int(in.N * in.K), C = int(in.C), S = int(in.S), offset = int(in.mask.query_offset);
  Rows<const T> query_ck = query_rows(in.query_bch, in.query_stride, in, at);
  Rows<const T> key_sk = key_rows<true>(in.key_bsh, in.key_stride, in, at);
  Rows<const T> value_sk = key_rows<true>(in.value_bsh, in.value_stride, in, at);
  const T *content_bias_k = terms.content_bias_nk + at.n * in.K,
          *position_bias_k = terms.position_bias_nk + at.n * in.K;
  const Token* mask_s = in.mask.mask_bs ? in.mask.mask_bs + at.b * in.S : nullptr;

  __device__ Head(const AttentionInputs<T>& inputs, const RelativeTerms<T>& t, const AttentionPlace& place,
                  float factor)
      : in(inputs), terms(t), at(place), scale(factor) {}

  __device__ bool sees(int c, int s) const {
    if (c < 0 || c >= C || s < 0 || s >= S || (mask_s && mask_s[s] == 0)) return false;
    const Stretch seen = terms.keys_of(c, offset);
    return s >= seen.begin && s < seen.end;
  }
  __device__ const T* key(int s) const { return s >= 0 && s < S ? key_sk[s] : nullptr; }
  __device__ const T* value(int s) const { return s >= 0 && s < S ? value_sk[s] : nullptr; }
  __device__ const T* query(int c) const { return c < C ? query_ck[c] : nullptr; }
  __device__ const T* rho(int distance) const {
    return terms.rho_ph + terms.row_of(distance > 0 ? distance : 0) * H + at.n * K;
  }
};

// Loads channels [first, first + slab) of `count` rows, row_of(i); 0 for missing rows. Called by all threads.
template <class RowOf>
__device__ __forceinline__ void fetch_slab(float (*to)[slab + 1], int count, int first, int K, const RowOf& row_of) {
  for (int i = int(threadIdx.x); i < count * slab; i += int(blockDim.x)) {
    const auto* row = row_of(i / slab);
    const int k = first + i % slab;
    to[i / slab][i % slab] = row && k < K ? float(row[k]) : 0;
  }
}

// A row of a warp, with a bias if given.
template <class T>
__device__ __forceinline__ void fetch_row(float* to_k, const T* from_k, const T* bias_k, int K) {
  for (int k = int(threadIdx.x) % warp_size; k < K; k += warp_size) {
    to_k[k] = from_k ? float(from_k[k]) + (bias_k ? float(bias_k[k]) : 0) : 0;
  }
}

// Calls each(first) for the slabs of K channels. With several slabs, fetch(first) loads each to shared memory, with
// barriers; a single slab is loaded once, in the first loop (`begins`), and reused in the others.
template <class Fetch, class Each>
__device__ __forceinline__ void for_slabs(int K, bool begins, const Fetch& fetch, const Each& each) {
  for (int first = 0; first < K; first += slab) {
    if (begins || K > slab) {
      __syncthreads();  // the previous contents have been read
      fetch(first);
      __syncthreads();
    }
    each(first, min_of(first + slab, K));
  }
}

__device__ __forceinline__ float dot_product(const float* x_k, const float* y_k, int K) {
  float sum = 0;
  for (int k = 0; k < K; ++k) sum = fmaf(x_k[k], y_k[k], sum);
  return sum;
}

// sum_j number_j row(j)_k over the lanes of a warp; one lane per channel of a slab.
template <class Row>
__device__ __forceinline__ float sum_over_lanes(const float* number_j, const Row& row, int k) {
  float sum = 0;
  for (int j = 0; j < side; ++j) sum = fmaf(number_j[j], row(j)[k], sum);
  return sum;
}

// ---- Rows that are queries ----

// A tile of keys, and the distances between it and the block's queries: that of warp w and lane l is w + (31 - l).
struct KeyTiles {
  Slab<side> key, value;
  Slab<between> rho;
  OfPairs number;

  template <class T>
  __device__ void fetch(const Head<T>& head, int first_query, int begin, int first, int K) {
    const int lowest = first_query + head.offset - (begin + side - 1);
    fetch_slab(key, side, first, K, [&](int i) { return head.key(begin + i); });
    fetch_slab(value, side, first, K, [&](int i) { return head.value(begin + i); });
    fetch_slab(rho, between, first, K, [&](int i) { return head.rho(lowest + i); });
  }
};

// Grid: blocks of up to 8 warps, one query per warp.
template <class T>
__global__ void forward_kernel(AttentionForward<T> a, RelativeTerms<T> terms, float scale, int blocks_of_head) {
  wait_for_kernel_before();
  auto& tiles = shared_memory<KeyTiles>();
  const Place my(a.in.C, a.in.N, blocks_of_head);
  const Head<T> head(a.in, terms, my.at, scale);
  const int K = head.K, lane = my.lane, c = my.row;
  const OwnRows<0, 4> own(K, my.warp);
  float *content_k = own[0], *position_k = own[1], *total_k = own[2], *low_k = own[3], *power_s = tiles.number[my.warp];
  const T* query_k = my.is_there ? head.query_ck[c] : nullptr;
  fetch_row(content_k, query_k, head.content_bias_k, K);
  fetch_row(position_k, query_k, head.position_bias_k, K);
  clear_row(total_k, own.K4);
  clear_row(low_k, own.K4);
  __syncwarp();

  float max = -infinity, sum = 0, sum_low = 0;
  const int end = int(terms.keys_of(my.at.first + my.count - 1, head.offset).end);
  for (int begin = int(terms.keys_of(my.at.first, head.offset).begin); begin < end; begin += side) {
    const auto fetch = [&](int first) { tiles.fetch(head, my.at.first, begin, first, K); };
    float score = 0;
    for_slabs(K, true, fetch, [&](int first, int slab_end) {
      score += dot_product(content_k + first, tiles.key[lane], slab_end - first) +
               dot_product(position_k + first, tiles.rho[my.warp + side - 1 - lane], slab_end - first);
    });
    const bool sees = my.is_there && head.sees(c, begin + lane);
    score = sees ? scale * score : -infinity;  // (relative_attention.1)

    const float new_max = fmaxf(max, warp_max(score)), base = new_max == -infinity ? 0 : new_max;
    const float shrink = expf(max - base), power = expf(score - base);
    max = new_max;
    sum *= shrink;
    sum_low *= shrink;
    add_compensated(sum, sum_low, warp_sum(power));  // (relative_attention.2)
    __syncwarp();
    power_s[lane] = power;
    __syncwarp();
    for_slabs(K, false, fetch, [&](int first, int slab_end) {
      for (int k = first + lane; k < slab_end; k += warp_size) {
        total_k[k] *= shrink;
        low_k[k] *= shrink;
        add_compensated(total_k[k], low_k[k],
                        sum_over_lanes(
                            power_s, [&](int j) { return tiles.value[j]; }, k - first));
      }
    });
  }
  if (!my.is_there) return;
  sum += sum_low;
  const bool sees_none = sum == 0;
  const float inverse = sees_none ? 0 : 1 / sum;
  T* out_k = query_rows(a.out_bch, 0, a.in, my.at)[c];
  for (int k = lane; k < K; k += warp_size) out_k[k] = T((total_k[k] + low_k[k]) * inverse);  // (relative_attention.3)
  if (lane > 0) return;
  a.lse_bnc[Index{my.at.head} * a.in.C + c] = sees_none ? infinity : max + logf(sum);  // (relative_attention.4)
}

// Terms of an attended pair in the gradients.
struct Pair {
  float weight, d_score;
};
__device__ __forceinline__ Pair pair_of(float score, float lse, float d_weight, float delta) {
  const float weight = expf(score - lse);        // (relative_attention.5)
  return {weight, weight * (d_weight - delta)};  // (relative_attention.7)
}

// Grid: blocks of up to 8 warps, one query per warp. Computes delta for the kernels below, and each block's part of the
// gradients of the biases: both biases of all heads, block by block.
template <class T>
__global__ void backward_query_kernel(AttentionBackward<T> a, RelativeTerms<T> terms, float scale, float* delta_bnc,
                                      float* part, int blocks_of_head) {
  wait_for_kernel_before();
  auto& tiles = shared_memory<KeyTiles>();
  const Place my(a.in.C, a.in.N, blocks_of_head);
  const Head<T> head(a.in, terms, my.at, scale);
  const int K = head.K, lane = my.lane, c = my.row;
  const OwnRows<0, 7> own(K, my.warp);
  float *content_k = own[0], *position_k = own[1], *d_out_k = own[2], *d_content_k = own[3], *d_content_low_k = own[4],
        *d_position_k = own[5], *d_position_low_k = own[6], *d_score_s = tiles.number[my.warp];
  const T* query_k = my.is_there ? head.query_ck[c] : nullptr;
  fetch_row(content_k, query_k, head.content_bias_k, K);
  fetch_row(position_k, query_k, head.position_bias_k, K);
  fetch_row(d_out_k, my.is_there ? query_rows(a.d_out_bch, 0, a.in, my.at)[c] : nullptr, static_cast<const T*>(nullptr),
            K);
  for (float* sum_k : {d_content_k, d_content_low_k, d_position_k, d_position_low_k}) clear_row(sum_k, own.K4);
  __syncwarp();

  float delta = 0, lse = infinity;
  if (my.is_there) {
    const T* out_k = query_rows(a.out_bch, 0, a.in, my.at)[c];
    for (int k = 0; k < K; ++k) delta = fmaf(d_out_k[k], float(out_k[k]), delta);  // (relative_attention.6)
    const Index bnc = Index{my.at.head} * a.in.C + c;
    lse = a.lse_bnc[bnc];
    if (lane == 0) delta_bnc[bnc] = delta;
  }
  const int end = int(terms.keys_of(my.at.first + my.count - 1, head.offset).end);
  for (int begin = int(terms.keys_of(my.at.first, head.offset).begin); begin < end; begin += side) {
    const auto fetch = [&](int first) { tiles.fetch(head, my.at.first, begin, first, K); };
    const auto rho = [&](int j) { return tiles.rho[my.warp + side - 1 - j]; };
    float score = 0, d_weight = 0;
    for_slabs(K, true, fetch, [&](int first, int slab_end) {
      score += dot_product(content_k + first, tiles.key[lane], slab_end - first) +
               dot_product(position_k + first, rho(lane), slab_end - first);
      d_weight += dot_product(d_out_k + first, tiles.value[lane], slab_end - first);
    });
    const bool sees = my.is_there && head.sees(c, begin + lane);
    __syncwarp();
    d_score_s[lane] = sees ? pair_of(scale * score, lse, d_weight, delta).d_score : 0;
    __syncwarp();
    for_slabs(K, false, fetch, [&](int first, int slab_end) {
      for (int k = first + lane; k < slab_end; k += warp_size) {
        add_compensated(d_content_k[k], d_content_low_k[k],
                        sum_over_lanes(
                            d_score_s, [&](int j) { return tiles.key[j]; }, k - first));
        add_compensated(d_position_k[k], d_position_low_k[k], sum_over_lanes(d_score_s, rho, k - first));
      }
    });
  }
  for (int k = lane; k < K; k += warp_size) {
    d_content_k[k] = scale * (d_content_k[k] + d_content_low_k[k]);     // (relative_attention.8)
    d_position_k[k] = scale * (d_position_k[k] + d_position_low_k[k]);  // (relative_attention.9)
  }
  if (my.is_there) {
    T* d_query_k = query_rows(a.d_query_bch, a.d_query_stride, a.in, my.at)[c];
    for (int k = lane; k < K; k += warp_size) {
      d_query_k[k] = T(d_content_k[k] + d_position_k[k]);  // (relative_attention.10)
    }
  }
  __syncthreads();
  const int warps = int(blockDim.x) / warp_size;
  float* part_k = part + ((Index{my.at.b} * blocks_of_head + my.at.first / warps) * 2 * a.in.N + my.at.n) * K;
  for (int k = int(threadIdx.x); k < K; k += int(blockDim.x)) {
    float content = 0, position = 0;
    for (int warp = 0; warp < warps; ++warp) {
      const OwnRows<0, 7> rows(K, warp);
      content += rows[3][k];
      position += rows[5][k];
    }
    part_k[k] = content;                // (relative_attention.11)
    part_k[a.in.N * K + k] = position;  // (relative_attention.12)
  }
}

// ---- Rows that are keys ----

// A tile of queries, and the distances between it and the block's keys: that of warp w and lane l is l + (7 - w).
struct QueryTiles {
  Slab<side> query, d_out;
  Slab<between> rho;
  OfPairs weight, d_score;

  template <class T>
  __device__ void fetch(const Head<T>& head, Rows<const T> d_out_ck, int first_key, int begin, int first, int K) {
    const int lowest = begin + head.offset - (first_key + most_warps - 1);
    fetch_slab(query, side, first, K, [&](int i) { return head.query(begin + i); });
    fetch_slab(d_out, side, first, K, [&](int i) { return begin + i < head.C ? d_out_ck[begin + i] : nullptr; });
    fetch_slab(rho, between, first, K, [&](int i) { return head.rho(lowest + i); });
  }
};

// (x + bias) y over the channels of a slab.
__device__ __forceinline__ float biased_product(const float* x_k, const float* bias_k, const float* y_k, int K) {
  float sum = 0;
  for (int k = 0; k < K; ++k) sum = fmaf(x_k[k] + bias_k[k], y_k[k], sum);
  return sum;
}

// Grid: blocks of up to 8 warps, one key per warp.
template <class T>
__global__ void backward_key_kernel(AttentionBackward<T> a, RelativeTerms<T> terms, RelativeGradients<T> d, float scale,
                                    const float* delta_bnc, int blocks_of_head) {
  wait_for_kernel_before();
  auto& tiles = shared_memory<QueryTiles>();
  const Place my(a.in.S, a.in.N, blocks_of_head);
  const Head<T> head(a.in, terms, my.at, scale);
  const int K = head.K, lane = my.lane, s = my.row;
  const OwnRows<2, 6> own(K, my.warp);
  float *key_k = own[0], *value_k = own[1], *d_key_k = own[2], *d_key_low_k = own[3], *d_value_k = own[4],
        *d_value_low_k = own[5], *content_bias_k = own.common, *position_bias_k = own.common + own.K4;
  float *weight_c = tiles.weight[my.warp], *d_score_c = tiles.d_score[my.warp];
  const Rows<const T> d_out_ck = query_rows(a.d_out_bch, 0, a.in, my.at);
  const T* no_bias = nullptr;
  fetch_row(key_k, my.is_there ? head.key_sk[s] : nullptr, no_bias, K);
  fetch_row(value_k, my.is_there ? head.value_sk[s] : nullptr, no_bias, K);
  if (my.warp == 0) {
    fetch_row(content_bias_k, head.content_bias_k, no_bias, K);
    fetch_row(position_bias_k, head.position_bias_k, no_bias, K);
  }
  __syncthreads();

  // Queries of the key's own segment, then those for which it is memory. The border differs between warps.
  const int last = my.at.first + my.count - 1, own_end = int(terms.own_end(s, head.offset));
  for (const bool past : {false, true}) {
    for (float* sum_k : {d_key_k, d_key_low_k, d_value_k, d_value_low_k}) clear_row(sum_k, own.K4);
    __syncwarp();
    const Stretch of_first = terms.queries_of(my.at.first, head.offset, head.C);
    const int first_query = past ? int(terms.own_end(my.at.first, head.offset)) : int(of_first.begin);
    const int end = past ? int(terms.queries_of(last, head.offset, head.C).end)
                         : min_of(int(terms.own_end(last, head.offset)), head.C);
    for (int begin = first_query; begin < end; begin += side) {
      const auto fetch = [&](int first) { tiles.fetch(head, d_out_ck, my.at.first, begin, first, K); };
      float score = 0, d_weight = 0;
      for_slabs(K, true, fetch, [&](int first, int slab_end) {
        const int count = slab_end - first;
        score += biased_product(tiles.query[lane], content_bias_k + first, key_k + first, count) +
                 biased_product(tiles.query[lane], position_bias_k + first, tiles.rho[lane + most_warps - 1 - my.warp],
                                count);
        d_weight += dot_product(tiles.d_out[lane], value_k + first, count);
      });
      const int c = begin + lane;
      const bool sees = my.is_there && c < end && (c >= own_end) == past && head.sees(c, s);
      const Index bnc = Index{my.at.head} * a.in.C + c;
      const Pair pair = sees ? pair_of(scale * score, a.lse_bnc[bnc], d_weight, delta_bnc[bnc]) : Pair{0, 0};
      __syncwarp();
      weight_c[lane] = pair.weight;
      d_score_c[lane] = pair.d_score;
      __syncwarp();
      for_slabs(K, false, fetch, [&](int first, int slab_end) {
        for (int k = first + lane; k < slab_end; k += warp_size) {
          float d_key = 0;
          for (int j = 0; j < side; ++j) {
            d_key = fmaf(d_score_c[j], tiles.query[j][k - first] + content_bias_k[k], d_key);
          }
          add_compensated(d_key_k[k], d_key_low_k[k], d_key);
          add_compensated(d_value_k[k], d_value_low_k[k],
                          sum_over_lanes(
                              weight_c, [&](int j) { return tiles.d_out[j]; }, k - first));
        }
      });
    }
    if (!my.is_there) continue;
    T* to_key_k = key_rows<true>(past ? d.d_past_key_bsh : a.d_key_bsh, a.d_key_stride, a.in, my.at)[s];
    T* to_value_k = key_rows<true>(past ? d.d_past_value_bsh : a.d_value_bsh, a.d_value_stride, a.in, my.at)[s];
    for (int k = lane; k < K; k += warp_size) {
      to_key_k[k] = T(scale * (d_key_k[k] + d_key_low_k[k]));  // (relative_attention.14)
      to_value_k[k] = T(d_value_k[k] + d_value_low_k[k]);      // (relative_attention.15)
    }
  }
}

// ---- Rows that are distances ----

// A tile of queries, and the keys between it and the block's distances: that of warp w and lane l is l + (7 - w).
struct DistanceTiles {
  Slab<side> query, d_out;
  Slab<between> key, value;
  OfPairs d_score;

  template <class T>
  __device__ void fetch(const Head<T>& head, Rows<const T> d_out_ck, int first_distance, int begin, int first, int K) {
    const int lowest = begin + head.offset - (first_distance + most_warps - 1);
    fetch_slab(query, side, first, K, [&](int i) { return head.query(begin + i); });
    fetch_slab(d_out, side, first, K, [&](int i) { return begin + i < head.C ? d_out_ck[begin + i] : nullptr; });
    fetch_slab(key, between, first, K, [&](int i) { return head.key(lowest + i); });
    fetch_slab(value, between, first, K, [&](int i) { return head.value(lowest + i); });
  }
};

// Grid: for each head blocks of up to 8 warps, one distance per warp. The last row of rho, also used for longer
// distances, has its own block, whose warps alternate. A block sums over all sequences.
template <class T>
__global__ void backward_rho_kernel(AttentionBackward<T> a, RelativeTerms<T> terms, T* d_rho_ph, float scale,
                                    const float* delta_bnc, int blocks_of_head) {
  wait_for_kernel_before();
  auto& tiles = shared_memory<DistanceTiles>();
  const int P = int(terms.distances), N = int(a.in.N), warps = int(blockDim.x) / warp_size;
  const int n = int(blockIdx.x) / blocks_of_head, block = int(blockIdx.x) % blocks_of_head;
  const int warp = int(threadIdx.x) / warp_size, lane = int(threadIdx.x) % warp_size;
  const bool is_last = block == blocks_of_head - 1;
  const int first_row = is_last ? P - 1 : block * warps;
  const int K = int(a.in.K), C = int(a.in.C), longest = int(min_of(terms.memory + terms.segment, a.in.S)) - 1;
  const OwnRows<2, 3> own(K, warp);
  float *rho_k = own[0], *sum_k = own[1], *low_k = own[2], *content_bias_k = own.common,
        *position_bias_k = own.common + own.K4, *d_score_c = tiles.d_score[warp];
  const AttentionPlace of_sequences{0, n, n, 0};
  const Head<T> of_head(a.in, terms, of_sequences, scale);
  const T* no_bias = nullptr;
  fetch_row(rho_k, of_head.rho(is_last ? P - 1 : first_row + warp), no_bias, K);
  clear_row(sum_k, own.K4);
  clear_row(low_k, own.K4);
  if (warp == 0) {
    fetch_row(content_bias_k, of_head.content_bias_k, no_bias, K);
    fetch_row(position_bias_k, of_head.position_bias_k, no_bias, K);
  }
  __syncthreads();

  for (int first_distance = first_row; first_distance <= longest; first_distance += warps) {
    const int distance = first_distance + warp;
    for (int b = 0; b < int(a.in.B); ++b) {
      const AttentionPlace at{b, n, b * N + n, 0};
      const Head<T> head(a.in, terms, at, scale);
      const Rows<const T> d_out_ck = query_rows(a.d_out_bch, 0, a.in, at);
      for (int begin = 0; begin < C; begin += side) {
        const auto fetch = [&](int first) { tiles.fetch(head, d_out_ck, first_distance, begin, first, K); };
        const int between_row = lane + most_warps - 1 - warp;
        float score = 0, d_weight = 0;
        for_slabs(K, true, fetch, [&](int first, int slab_end) {
          const int count = slab_end - first;
          score += biased_product(tiles.query[lane], content_bias_k + first, tiles.key[between_row], count) +
                   biased_product(tiles.query[lane], position_bias_k + first, rho_k + first, count);
          d_weight += dot_product(tiles.d_out[lane], tiles.value[between_row], count);
        });
        const int c = begin + lane;
        const bool sees = (is_last || distance < P - 1) && head.sees(c, c + head.offset - distance);
        const Index bnc = Index{at.head} * C + c;
        const Pair pair = sees ? pair_of(scale * score, a.lse_bnc[bnc], d_weight, delta_bnc[bnc]) : Pair{0, 0};
        __syncwarp();
        d_score_c[lane] = pair.d_score;
        __syncwarp();
        for_slabs(K, false, fetch, [&](int first, int slab_end) {
          for (int k = first + lane; k < slab_end; k += warp_size) {
            float d_rho = 0;
            for (int j = 0; j < side; ++j) {
              d_rho = fmaf(d_score_c[j], tiles.query[j][k - first] + position_bias_k[k], d_rho);
            }
            add_compensated(sum_k[k], low_k[k], d_rho);
          }
        });
      }
    }
    if (!is_last) break;
  }
  __syncthreads();
  const auto row = [&](int p) { return d_rho_ph + (Index{p} * N + n) * K; };
  if (is_last) {
    for (int k = int(threadIdx.x); k < K; k += int(blockDim.x)) {
      float sum = 0;
      for (int other = 0; other < warps; ++other) {
        const OwnRows<2, 3> rows(K, other);
        sum += rows[1][k] + rows[2][k];
      }
      row(P - 1)[k] = T(scale * sum);  // (relative_attention.13)
    }
  } else if (first_row + warp < P - 1) {
    for (int k = lane; k < K; k += warp_size) row(first_row + warp)[k] = T(scale * (sum_k[k] + low_k[k]));
  }
}

template <class T>
float scale_of(const AttentionInputs<T>& in) {
  return float(in.scale > 0 ? in.scale : 1 / __builtin_sqrt(double(in.K)));
}

}  // namespace

template <class Device, class T>
void relative_attention_forward(Device& device, const AttentionForward<T>& a, const RelativeTerms<T>& terms) {
  const auto& in = a.in;
  const int warps = warps_for(in.K, OwnRows<0, 4>::bytes);
  const int blocks_of_head = int(blocks_for(in.C, warps));
  launch(forward_kernel<T>, blocks_for(in.B * in.N * blocks_of_head, 1), unsigned(warps * warp_size),
         OwnRows<0, 4>::bytes(in.K, warps), device.stream(), a, terms, scale_of(in), blocks_of_head);
}

template <class Device, class T>
void relative_attention_backward(Device& device, const AttentionBackward<T>& a, const RelativeTerms<T>& terms,
                                 const RelativeGradients<T>& d) {
  const auto& in = a.in;
  const int warps = warps_for(in.K, OwnRows<2, 7>::bytes);
  const int query_blocks = int(blocks_for(in.C, warps)), key_blocks = int(blocks_for(in.S, warps)),
            distance_blocks = int(blocks_for(terms.distances - 1, warps)) + 1;
  const unsigned threads = unsigned(warps * warp_size);
  const float scale = scale_of(in);
  typename Device::Scope scratch(device.workspace);
  float* delta_bnc = scratch.template take<float>(in.B * in.N * in.C);
  float* part = take_parts(device, scratch, in.B * query_blocks * 2 * in.N * in.K);
  launch(backward_query_kernel<T>, blocks_for(in.B * in.N * query_blocks, 1), threads,
         OwnRows<0, 7>::bytes(in.K, warps), device.stream(), a, terms, scale, delta_bnc, part, query_blocks);
  launch(backward_key_kernel<T>, blocks_for(in.B * in.N * key_blocks, 1), threads, OwnRows<2, 6>::bytes(in.K, warps),
         device.stream(), a, terms, d, scale, delta_bnc, key_blocks);
  launch(backward_rho_kernel<T>, blocks_for(in.N * distance_blocks, 1), threads, OwnRows<2, 3>::bytes(in.K, warps),
         device.stream(), a, terms, d.d_rho_ph, scale, delta_bnc, distance_blocks);
  add_partial_sums(device, {.to_d = d.d_content_bias_nk,
                            .part_pd = part,
                            .parts = in.B * query_blocks,
                            .D = in.N * in.K,
                            .stride = 2 * in.N * in.K,
                            .second_d = d.d_position_bias_nk});
}

ABH_INSTANTIATE(Gpu, relative_attention_forward, relative_attention_backward)

}  // namespace abh
