#pragma once

// Attention for heads of many channels.
//
// Plain kernels for any K: one warp per row, lane l has channels l, l + 32, ...; its sums are in shared memory,
// separate for each lane, so no barrier is needed. Correct, not fast.

#include "cuda/attention_tiles.hpp"

namespace abh {

namespace {

// Dot product with the same summation order at every use. Called by all lanes of the warp.
template <class T>
__device__ __forceinline__ float dot_product(const T* x_k, const T* y_k, int K) {
  float sum = 0;
  for (int k = int(threadIdx.x) % warp_size; k < K; k += warp_size) sum = fmaf(float(x_k[k]), float(y_k[k]), sum);
  return warp_sum(sum);
}

// Row of long sums in shared memory, 3 K floats: those of the current tile, and those of earlier tiles as compensated
// pairs. Each lane accesses its own channels.
struct LongSum {
  float *tile_k, *total_k, *low_k;
  int K;

  __device__ LongSum(float* memory, Index channels)
      : tile_k(memory), total_k(memory + channels), low_k(total_k + channels), K(int(channels)) {
    for (int k = int(threadIdx.x); k < K; k += warp_size) tile_k[k] = total_k[k] = low_k[k] = 0;
  }
  // End of a tile: adds its sums to the others, each side times a factor.
  __device__ __forceinline__ void end_tile(float shrink = 1, float factor = 1) const {
    for (int k = int(threadIdx.x); k < K; k += warp_size) {
      total_k[k] *= shrink;
      low_k[k] *= shrink;
      add_compensated(total_k[k], low_k[k], tile_k[k] * factor);
      tile_k[k] = 0;
    }
  }
  template <class T>
  __device__ __forceinline__ void store_sums(T* to_k, float factor) const {
    for (int k = int(threadIdx.x); k < K; k += warp_size) to_k[k] = T((total_k[k] + low_k[k]) * factor);
  }
};

// Calls each(i) for every i of a range, and end_tile() after the last i of a tile.
template <class Each, class EndTile>
__device__ __forceinline__ void for_each_in_tiles(const Range& range, const Each& each, const EndTile& end_tile) {
  for (int i = range.begin; i < range.end; ++i) {
    each(i);
    if ((i + 1) % tile == 0 || i + 1 == range.end) end_tile();
  }
}

// Block indices: rows first, `count` per head, then heads.
__device__ __forceinline__ AttentionPlace place_of_row(Index count, Index heads_of_sequence) {
  const int block = int(blockIdx.x), rows = int(count), N = int(heads_of_sequence), head = block / rows;
  return {head / N, head % N, head, block % rows};
}

// Grid: one block of one warp per query.
template <class T, bool general>
__global__ void plain_forward_kernel(AttentionForward<T> a, float scale) {
  wait_for_kernel_before();
  const auto& in = a.in;
  const LongSum out(static_cast<float*>(dynamic_shared_memory()), in.K);
  const AttentionPlace at = place_of_row(in.C, in.N);
  const Rows<const T> key_sk = key_rows<general>(in.key_bsh, in.key_stride, in, at);
  const Rows<const T> value_sk = key_rows<general>(in.value_bsh, in.value_stride, in, at);
  const T* query_k = query_rows(in.query_bch, in.query_stride, in, at)[at.first];
  const HeadMask<general> mask = mask_of<general>(in, at);
  const int K = int(in.K), lane = int(threadIdx.x);

  float max = -infinity, sum = 0;                                 // of the current tile
  float total_max = -infinity, total_sum = 0, total_sum_low = 0;  // of the earlier tiles
  for_each_in_tiles(
      mask.keys_of(at.first, 1),
      [&](int key) {
        if (!mask.sees(at.first, key)) return;
        const float product = scale * dot_product(query_k, key_sk[key], K);  // (attention.1)
        const float score = mask.join_bias(product, at.first, key);          // (attention.11)
        const float new_max = fmaxf(max, score);
        const float shrink = expf(max - new_max), power = expf(score - new_max);
        max = new_max;
        sum = sum * shrink + power;  // (attention.2)
        for (int k = lane; k < K; k += warp_size) {
          out.tile_k[k] = out.tile_k[k] * shrink + power * float(value_sk[key][k]);
        }
      },
      [&] {
        const float new_max = fmaxf(total_max, max), base = new_max == -infinity ? 0 : new_max;
        const float shrink = expf(total_max - base), factor = expf(max - base);
        out.end_tile(shrink, factor);
        total_sum *= shrink;
        total_sum_low *= shrink;
        add_compensated(total_sum, total_sum_low, sum * factor);
        total_max = new_max;
        max = -infinity;
        sum = 0;
      });
  sum = total_sum + total_sum_low;
  const bool sees_none = sum == 0;
  out.store_sums(query_rows(a.out_bch, 0, in, at)[at.first], sees_none ? 0 : 1 / sum);  // (attention.3)
  if (lane > 0) return;
  a.lse_bnc[Index{at.head} * in.C + at.first] = sees_none ? infinity : total_max + logf(sum);  // (attention.4)
}

// Grid: one block of one warp per query. Computes delta for the kernel below.
template <class T, bool general>
__global__ void plain_backward_query_kernel(AttentionBackward<T> a, float* delta_bnc, float scale) {
  wait_for_kernel_before();
  const auto& in = a.in;
  const LongSum d_query(static_cast<float*>(dynamic_shared_memory()), in.K);
  const AttentionPlace at = place_of_row(in.C, in.N);
  const Rows<const T> key_sk = key_rows<general>(in.key_bsh, in.key_stride, in, at);
  const Rows<const T> value_sk = key_rows<general>(in.value_bsh, in.value_stride, in, at);
  const T* query_k = query_rows(in.query_bch, in.query_stride, in, at)[at.first];
  const T* d_out_k = query_rows(a.d_out_bch, 0, in, at)[at.first];
  const HeadMask<general> mask = mask_of<general>(in, at);
  const int K = int(in.K), lane = int(threadIdx.x);
  const Index bnc = Index{at.head} * in.C + at.first;

  const float delta = dot_product(d_out_k, query_rows(a.out_bch, 0, in, at)[at.first], K);  // (attention.6)
  if (lane == 0) delta_bnc[bnc] = delta;
  for_each_in_tiles(
      mask.keys_of(at.first, 1),
      [&](int key) {
        if (!mask.sees(at.first, key)) return;
        const float product = dot_product(query_k, key_sk[key], K);
        const float weight = expf(fmaf(scale, product, mask.join_bias(-a.lse_bnc[bnc], at.first, key)));
        const float d_score = weight * (dot_product(d_out_k, value_sk[key], K) - delta);
        for (int k = lane; k < K; k += warp_size) d_query.tile_k[k] += d_score * float(key_sk[key][k]);
      },
      [&] { d_query.end_tile(); });
  d_query.store_sums(query_rows(a.d_query_bch, a.d_query_stride, in, at)[at.first], scale);  // (attention.8)
}

// Grid: one block of one warp per key.
template <class T, bool general>
__global__ void plain_backward_key_kernel(AttentionBackward<T> a, const float* delta_bnc, float scale) {
  wait_for_kernel_before();
  const auto& in = a.in;
  float* memory = static_cast<float*>(dynamic_shared_memory());
  const LongSum d_key(memory, in.K), d_value(memory + 3 * in.K, in.K);
  const AttentionPlace at = place_of_row(in.S, in.N);
  const Rows<const T> query_ck = query_rows(in.query_bch, in.query_stride, in, at);
  const Rows<const T> d_out_ck = query_rows(a.d_out_bch, 0, in, at);
  const T* key_k = key_rows<general>(in.key_bsh, in.key_stride, in, at)[at.first];
  const T* value_k = key_rows<general>(in.value_bsh, in.value_stride, in, at)[at.first];
  const HeadMask<general> mask = mask_of<general>(in, at);
  const int C = int(in.C), K = int(in.K), lane = int(threadIdx.x);

  for_each_in_tiles(
      mask.queries_of(at.first, 1, C),
      [&](int query) {
        if (!mask.sees(query, at.first)) return;
        const Index bnc = Index{at.head} * C + query;
        const float product = dot_product(query_ck[query], key_k, K);
        const float weight =
            expf(fmaf(scale, product, mask.join_bias(-a.lse_bnc[bnc], query, at.first)));            // (attention.5)
        const float d_score = weight * (dot_product(d_out_ck[query], value_k, K) - delta_bnc[bnc]);  // (attention.7)
        for (int k = lane; k < K; k += warp_size) {
          d_key.tile_k[k] += d_score * float(query_ck[query][k]);
          d_value.tile_k[k] += weight * float(d_out_ck[query][k]);
        }
      },
      [&] {
        d_key.end_tile();
        d_value.end_tile();
      });
  d_key.store_sums(key_rows<general>(a.d_key_bsh, a.d_key_stride, in, at)[at.first], scale);    // (attention.9)
  d_value.store_sums(key_rows<general>(a.d_value_bsh, a.d_value_stride, in, at)[at.first], 1);  // (attention.10)
}

}  // namespace

}  // namespace abh
