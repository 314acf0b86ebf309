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

// Blocks are numbered with positions fastest.
template <class Arguments>
__device__ __forceinline__ Place place_of_row(const Arguments& a) {
  const int block = int(blockIdx.x), C = int(a.C), N = int(a.N), head = block / C;
  return {head / N, head % N, head, block % C};
}

// Grid: a block of one warp for each query.
template <class T>
__global__ void plain_forward_kernel(AttentionForward<T> a, float scale) {
  float* out_k = static_cast<float*>(dynamic_shared_memory());
  const Place at = place_of_row(a);
  const Rows<const T> key_ck = head_rows(a.key_bch, a.key_stride, a, at);
  const Rows<const T> value_ck = head_rows(a.value_bch, a.value_stride, a, at);
  const T* query_k = head_rows(a.query_bch, a.query_stride, a, at)[at.first];
  const Sight sight = sight_of(a, at);
  const int K = int(a.K), keys = a.causal ? at.first + 1 : int(a.C), lane = int(threadIdx.x);

  for (int k = lane; k < K; k += warp_size) out_k[k] = 0;
  float max = -infinity, sum = 0;
  for (int key = 0; key < keys; ++key) {
    if (!sight.sees(at.first, key)) continue;
    const float score = scale * dot_product(query_k, key_ck[key], K);  // (attention.1)
    const float new_max = fmaxf(max, score);
    const float shrink = expf(max - new_max), power = expf(score - new_max);
    max = new_max;
    sum = sum * shrink + power;  // (attention.2)
    for (int k = lane; k < K; k += warp_size) out_k[k] = out_k[k] * shrink + power * float(value_ck[key][k]);
  }
  const bool sees_none = sum == 0;
  lay_row(head_rows(a.out_bch, 0, a, at)[at.first], out_k, sees_none ? 0 : 1 / sum, K);  // (attention.3)
  if (lane > 0) return;
  a.lse_bnc[Index{at.head} * a.C + at.first] = sees_none ? infinity : max + logf(sum);  // (attention.4)
}

// Grid: a block of one warp for each query. Makes delta for the kernel below.
template <class T>
__global__ void plain_backward_query_kernel(AttentionBackward<T> a, float* delta_bnc, float scale) {
  float* d_query_k = static_cast<float*>(dynamic_shared_memory());
  const Place at = place_of_row(a);
  const Rows<const T> key_ck = head_rows(a.key_bch, a.key_stride, a, at);
  const Rows<const T> value_ck = head_rows(a.value_bch, a.value_stride, a, at);
  const T* query_k = head_rows(a.query_bch, a.query_stride, a, at)[at.first];
  const T* d_out_k = head_rows(a.d_out_bch, 0, a, at)[at.first];
  const Sight sight = sight_of(a, at);
  const int K = int(a.K), keys = a.causal ? at.first + 1 : int(a.C), lane = int(threadIdx.x);
  const Index bnc = Index{at.head} * a.C + at.first;

  const float delta = dot_product(d_out_k, head_rows(a.out_bch, 0, a, at)[at.first], K);  // (attention.6)
  if (lane == 0) delta_bnc[bnc] = delta;
  for (int k = lane; k < K; k += warp_size) d_query_k[k] = 0;
  for (int key = 0; key < keys; ++key) {
    if (!sight.sees(at.first, key)) continue;
    const float weight = expf(fmaf(scale, dot_product(query_k, key_ck[key], K), -a.lse_bnc[bnc]));
    const float d_score = weight * (dot_product(d_out_k, value_ck[key], K) - delta);
    for (int k = lane; k < K; k += warp_size) d_query_k[k] += d_score * float(key_ck[key][k]);
  }
  lay_row(head_rows(a.d_query_bch, a.d_query_stride, a, at)[at.first], d_query_k, scale,
          K);  // (attention.8)
}

// Grid: a block of one warp for each key.
template <class T>
__global__ void plain_backward_key_kernel(AttentionBackward<T> a, const float* delta_bnc, float scale) {
  float* d_key_k = static_cast<float*>(dynamic_shared_memory());
  float* d_value_k = d_key_k + a.K;
  const Place at = place_of_row(a);
  const Rows<const T> query_ck = head_rows(a.query_bch, a.query_stride, a, at);
  const Rows<const T> d_out_ck = head_rows(a.d_out_bch, 0, a, at);
  const T* key_k = head_rows(a.key_bch, a.key_stride, a, at)[at.first];
  const T* value_k = head_rows(a.value_bch, a.value_stride, a, at)[at.first];
  const Sight sight = sight_of(a, at);
  const int C = int(a.C), K = int(a.K), lane = int(threadIdx.x);

  for (int k = lane; k < K; k += warp_size) d_key_k[k] = d_value_k[k] = 0;
  for (int query = a.causal ? at.first : 0; query < C; ++query) {
    if (!sight.sees(query, at.first)) continue;
    const Index bnc = Index{at.head} * C + query;
    const float score = dot_product(query_ck[query], key_k, K);
    const float weight = expf(fmaf(scale, score, -a.lse_bnc[bnc]));                              // (attention.5)
    const float d_score = weight * (dot_product(d_out_ck[query], value_k, K) - delta_bnc[bnc]);  // (attention.7)
    for (int k = lane; k < K; k += warp_size) {
      d_key_k[k] += d_score * float(query_ck[query][k]);
      d_value_k[k] += weight * float(d_out_ck[query][k]);
    }
  }
  lay_row(head_rows(a.d_key_bch, a.d_key_stride, a, at)[at.first], d_key_k, scale, K);    // (attention.9)
  lay_row(head_rows(a.d_value_bch, a.d_value_stride, a, at)[at.first], d_value_k, 1, K);  // (attention.10)
}

}  // namespace

}  // namespace abh
