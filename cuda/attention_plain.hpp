#pragma once

// Attention for heads of many channels.
//
// Plain kernels for any K: a row belongs to a warp, lane l has channels l, l + 32, ...; what it sums lies in shared
// memory, each lane in its own places, so there is no barrier. Correct, not fast.

#include "cuda/attention_tiles.hpp"

namespace abh {

namespace {

// The same sum in the same order wherever it is formed. All lanes of the warp together.
template <class T>
__device__ __forceinline__ float dot_product(const T* x_k, const T* y_k, int K) {
  float sum = 0;
  for (int k = int(threadIdx.x) % warp_size; k < K; k += warp_size) sum = fmaf(float(x_k[k]), float(y_k[k]), sum);
  return warp_sum(sum);
}

template <class T>
__device__ __forceinline__ void lay_row(T* to_k, const float* from_k, float factor, int K) {
  for (int k = int(threadIdx.x); k < K; k += warp_size) to_k[k] = T(from_k[k] * factor);
}

// Blocks are numbered with rows fastest, of which a head has `count`.
__device__ __forceinline__ Place place_of_row(Index count, Index heads_of_sequence) {
  const int block = int(blockIdx.x), rows = int(count), N = int(heads_of_sequence), head = block / rows;
  return {head / N, head % N, head, block % rows};
}

// Grid: a block of one warp for each query.
template <class T, bool general>
__global__ void plain_forward_kernel(AttentionForward<T> a, float scale) {
  float* out_k = static_cast<float*>(dynamic_shared_memory());
  const Place at = place_of_row(a.C, a.N);
  const Rows<const T> key_sk = key_rows<general>(a.key_bsh, a.key_stride, a, at);
  const Rows<const T> value_sk = key_rows<general>(a.value_bsh, a.value_stride, a, at);
  const T* query_k = query_rows(a.query_bch, a.query_stride, a, at)[at.first];
  const HeadSight<general> sight = sight_of<general>(a, at);
  const Range keys = sight.keys_of(at.first, 1);
  const int K = int(a.K), lane = int(threadIdx.x);

  for (int k = lane; k < K; k += warp_size) out_k[k] = 0;
  float max = -infinity, sum = 0;
  for (int key = keys.begin; key < keys.end; ++key) {
    if (!sight.sees(at.first, key)) continue;
    const float product = scale * dot_product(query_k, key_sk[key], K);  // (attention.1)
    const float score = sight.join_bias(product, at.first, key);         // (attention.11)
    const float new_max = fmaxf(max, score);
    const float shrink = expf(max - new_max), power = expf(score - new_max);
    max = new_max;
    sum = sum * shrink + power;  // (attention.2)
    for (int k = lane; k < K; k += warp_size) out_k[k] = out_k[k] * shrink + power * float(value_sk[key][k]);
  }
  const bool sees_none = sum == 0;
  lay_row(query_rows(a.out_bch, 0, a, at)[at.first], out_k, sees_none ? 0 : 1 / sum, K);  // (attention.3)
  if (lane > 0) return;
  a.lse_bnc[Index{at.head} * a.C + at.first] = sees_none ? infinity : max + logf(sum);  // (attention.4)
}

// Grid: a block of one warp for each query. Makes delta for the kernel below.
template <class T, bool general>
__global__ void plain_backward_query_kernel(AttentionBackward<T> a, float* delta_bnc, float scale) {
  float* d_query_k = static_cast<float*>(dynamic_shared_memory());
  const Place at = place_of_row(a.C, a.N);
  const Rows<const T> key_sk = key_rows<general>(a.key_bsh, a.key_stride, a, at);
  const Rows<const T> value_sk = key_rows<general>(a.value_bsh, a.value_stride, a, at);
  const T* query_k = query_rows(a.query_bch, a.query_stride, a, at)[at.first];
  const T* d_out_k = query_rows(a.d_out_bch, 0, a, at)[at.first];
  const HeadSight<general> sight = sight_of<general>(a, at);
  const Range keys = sight.keys_of(at.first, 1);
  const int K = int(a.K), lane = int(threadIdx.x);
  const Index bnc = Index{at.head} * a.C + at.first;

  const float delta = dot_product(d_out_k, query_rows(a.out_bch, 0, a, at)[at.first], K);  // (attention.6)
  if (lane == 0) delta_bnc[bnc] = delta;
  for (int k = lane; k < K; k += warp_size) d_query_k[k] = 0;
  for (int key = keys.begin; key < keys.end; ++key) {
    if (!sight.sees(at.first, key)) continue;
    const float product = dot_product(query_k, key_sk[key], K);
    const float weight = expf(fmaf(scale, product, sight.join_bias(-a.lse_bnc[bnc], at.first, key)));
    const float d_score = weight * (dot_product(d_out_k, value_sk[key], K) - delta);
    for (int k = lane; k < K; k += warp_size) d_query_k[k] += d_score * float(key_sk[key][k]);
  }
  lay_row(query_rows(a.d_query_bch, a.d_query_stride, a, at)[at.first], d_query_k, scale,
          K);  // (attention.8)
}

// Grid: a block of one warp for each key.
template <class T, bool general>
__global__ void plain_backward_key_kernel(AttentionBackward<T> a, const float* delta_bnc, float scale) {
  float* d_key_k = static_cast<float*>(dynamic_shared_memory());
  float* d_value_k = d_key_k + a.K;
  const Place at = place_of_row(a.S, a.N);
  const Rows<const T> query_ck = query_rows(a.query_bch, a.query_stride, a, at);
  const Rows<const T> d_out_ck = query_rows(a.d_out_bch, 0, a, at);
  const T* key_k = key_rows<general>(a.key_bsh, a.key_stride, a, at)[at.first];
  const T* value_k = key_rows<general>(a.value_bsh, a.value_stride, a, at)[at.first];
  const HeadSight<general> sight = sight_of<general>(a, at);
  const int C = int(a.C), K = int(a.K), lane = int(threadIdx.x);

  for (int k = lane; k < K; k += warp_size) d_key_k[k] = d_value_k[k] = 0;
  const Range queries = sight.queries_of(at.first, 1, C);
  for (int query = queries.begin; query < queries.end; ++query) {
    if (!sight.sees(query, at.first)) continue;
    const Index bnc = Index{at.head} * C + query;
    const float product = dot_product(query_ck[query], key_k, K);
    const float weight =
        expf(fmaf(scale, product, sight.join_bias(-a.lse_bnc[bnc], query, at.first)));           // (attention.5)
    const float d_score = weight * (dot_product(d_out_ck[query], value_k, K) - delta_bnc[bnc]);  // (attention.7)
    for (int k = lane; k < K; k += warp_size) {
      d_key_k[k] += d_score * float(query_ck[query][k]);
      d_value_k[k] += weight * float(d_out_ck[query][k]);
    }
  }
  lay_row(key_rows<general>(a.d_key_bsh, a.d_key_stride, a, at)[at.first], d_key_k, scale, K);    // (attention.9)
  lay_row(key_rows<general>(a.d_value_bsh, a.d_value_stride, a, at)[at.first], d_value_k, 1, K);  // (attention.10)
}

}  // namespace

}  // namespace abh
