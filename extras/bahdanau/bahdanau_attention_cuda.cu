#include "cuda/attention_rows.hpp"
#include "cuda/kernel.hpp"
#include "cuda/partial_sums.hpp"
#include "extras/bahdanau/bahdanau_attention.hpp"

namespace abh {

namespace {

// One warp per row: a query in forward and for d_query, a key for d_key and d_value. The warps of a block own adjacent
// rows of one head and process the other side in tiles of 32 rows in shared memory, `slab` channels at a time. For
// logits a lane has one row of the tile, for sums over rows it has one channel. A tile is loaded once for all warps of
// a block, so the kernels are compute-bound: 5 instructions per pair and channel, and a quarter of a division.
constexpr int slab = 64;

// As on the CPU (extras/bahdanau/bahdanau_attention_cpu.cpp): four divisors share a division.
constexpr float most = 1 << 30;

// Rows are padded by one number, so that lanes read adjacent rows without bank conflicts.
struct Tiles {
  float power[side][slab + 1];
  float other[side][slab + 1];  // values, or d_out
};

// Values passed from lanes of rows to lanes of channels, one per pair of a warp.
struct PairTiles {
  Tiles tiles;
  float weight[most_warps][side], d_logit[most_warps][side];
};

// exp(2 x); NaN if it must not be used, so that every sum with it becomes NaN.
__device__ __forceinline__ float power_of(float x) {
  return fabsf(x) <= bahdanau_largest_row ? expf(2 * x) : __builtin_nanf("");
}
__device__ __forceinline__ float itself(float x) { return x; }

// Loads channels [first, first + slab) of rows [begin, begin + 32) of a tile, 0 outside. Called by all threads.
template <class T, class Make>
__device__ __forceinline__ void fetch_slab(float (&to)[side][slab + 1], Rows<const T> from, int begin, int end,
                                           int first, int K, const Make& make) {
  for (int i = int(threadIdx.x); i < side * slab; i += int(blockDim.x)) {
    const int row = i / slab, k = first + i % slab;
    to[row][i % slab] = begin + row < end && k < K ? make(float(from[begin + row][k])) : 0;
  }
}

// sum_k score_k lack_k of a slab; K4: its channels, padded to a multiple of 4 with zeros. NaN if an exponential is NaN.
__device__ __forceinline__ float sum_of_slab(const float* power_k, const float* other_power_k, const float* score_k,
                                             int K4) {
  float sum = 0;
  for (int k = 0; k < K4; k += 4) {
    float divisor[4];
    for (int j = 0; j < 4; ++j) {
      const float x = fmaf(power_k[k + j], other_power_k[k + j], 1.0f);
      divisor[j] = x > most ? most : x;
    }
    const float low = divisor[0] * divisor[1], high = divisor[2] * divisor[3];
    const float low_numerator = fmaf(score_k[k], divisor[1], score_k[k + 1] * divisor[0]);
    const float high_numerator = fmaf(score_k[k + 2], divisor[3], score_k[k + 3] * divisor[2]);
    sum += fmaf(low_numerator, high, high_numerator * low) / (low * high);
  }
  return sum;
}

// A logit, computed with tanh.
template <class T>
__device__ float far_logit(const T* query_k, const T* key_k, const T* score_k, int K) {
  float sum = 0;
  for (int k = 0; k < K; ++k) {
    sum = fmaf(float(score_k[k]), tanhf(float(query_k[k]) + float(key_k[k])), sum);  // (bahdanau_attention.1)
  }
  return sum;
}

template <class T>
__device__ __forceinline__ void fetch_score(float* score_k, const T* from_k, int K, int K4) {
  for (int k = int(threadIdx.x); k < K4; k += int(blockDim.x)) score_k[k] = k < K ? float(from_k[k]) : 0;
}
template <class T, class Make>
__device__ __forceinline__ void fetch_row(float* to_k, const T* from_k, bool there, int K, int K4, const Make& make) {
  for (int k = int(threadIdx.x) % warp_size; k < K4; k += warp_size) {
    to_k[k] = there && k < K ? make(float(from_k[k])) : 0;
  }
}

// Logit of every lane's pair. fetch(first): loads the slab from channel `first` on to `power`, with barriers.
template <class Fetch>
__device__ __forceinline__ float logit_of_slabs(const Tiles& tiles, const float* power_k, const float* score_k, int K4,
                                                int lane, const Fetch& fetch) {
  float lack_sum = 0, score_sum = 0;
  for (int first = 0; first < K4; first += slab) {
    fetch(first);
    lack_sum += sum_of_slab(power_k + first, tiles.power[lane], score_k + first, min_of(slab, K4 - first));
  }
  for (int k = 0; k < K4; ++k) score_sum += score_k[k];
  return score_sum - 2 * lack_sum;
}

// ---- Forward ----

// Grid: blocks of up to 8 warps, one query per warp.
template <class T>
__global__ void forward_kernel(AttentionForward<T> a, const T* score_nk, int blocks_of_head) {
  wait_for_kernel_before();
  const auto& in = a.in;
  auto& shared = shared_memory<PairTiles>();
  Tiles& tiles = shared.tiles;
  const Place my(in.C, in.N, blocks_of_head);
  const int K = int(in.K), lane = my.lane, c = my.row;
  const OwnRows<1, 3> own(K, my.warp);
  float *power_k = own[0], *total_k = own[1], *low_k = own[2], *power_s = shared.weight[my.warp];
  const Rows<const T> key_sk = key_rows<true>(in.key_bsh, in.key_stride, in, my.at);
  const Rows<const T> value_sk = key_rows<true>(in.value_bsh, in.value_stride, in, my.at);
  const T* query_k = query_rows(in.query_bch, in.query_stride, in, my.at)[c];
  const T* own_score_k = score_nk + my.at.n * in.K;
  const HeadMask<true> mask = mask_of<true>(in, my.at);
  fetch_score(own.common, own_score_k, K, own.K4);
  fetch_row(power_k, query_k, my.is_there, K, own.K4, power_of);
  clear_row(total_k, own.K4);
  clear_row(low_k, own.K4);
  __syncwarp();

  float max = -infinity, sum = 0, sum_low = 0;
  const Range keys = mask.keys_of(my.at.first, my.count);
  for (int begin = keys.begin; begin < keys.end; begin += side) {
    const int s = begin + lane;
    const bool sees = my.is_there && s < keys.end && mask.sees(c, s);
    float logit = logit_of_slabs(tiles, power_k, own.common, own.K4, lane, [&](int first) {
      __syncthreads();  // the previous contents have been read
      fetch_slab(tiles.power, key_sk, begin, keys.end, first, K, power_of);
      fetch_slab(tiles.other, value_sk, begin, keys.end, first, K, itself);
      __syncthreads();
    });
    if (sees && !(fabsf(logit) < infinity)) logit = far_logit(query_k, key_sk[s], own_score_k, K);
    logit = sees ? mask.join_bias(logit, c, s) : -infinity;  // (bahdanau_attention.12)

    const float new_max = fmaxf(max, warp_max(logit)), base = new_max == -infinity ? 0 : new_max;
    const float shrink = expf(max - base), power = expf(logit - base);
    max = new_max;
    sum *= shrink;
    sum_low *= shrink;
    add_compensated(sum, sum_low, warp_sum(power));  // (bahdanau_attention.2)
    __syncwarp();
    power_s[lane] = power;
    __syncwarp();
    for (int first = 0; first < K; first += slab) {
      if (K > slab) {  // otherwise the values are still there
        __syncthreads();
        fetch_slab(tiles.other, value_sk, begin, keys.end, first, K, itself);
        __syncthreads();
      }
      for (int k = first + lane; k < min_of(first + slab, K); k += warp_size) {
        float mixed = 0;
        for (int j = 0; j < side; ++j) mixed = fmaf(power_s[j], tiles.other[j][k - first], mixed);
        total_k[k] *= shrink;
        low_k[k] *= shrink;
        add_compensated(total_k[k], low_k[k], mixed);
      }
    }
  }
  if (!my.is_there) return;
  sum += sum_low;
  const bool sees_none = sum == 0;
  const float inverse = sees_none ? 0 : 1 / sum;
  T* out_k = query_rows(a.out_bch, 0, in, my.at)[c];
  for (int k = lane; k < K; k += warp_size) out_k[k] = T((total_k[k] + low_k[k]) * inverse);  // (bahdanau_attention.3)
  if (lane > 0) return;
  a.lse_bnc[Index{my.at.head} * in.C + c] = sees_none ? infinity : max + logf(sum);  // (bahdanau_attention.4)
}

// ---- Backward ----

// Reciprocals of four pairs in one channel, by one division if no exponential is NaN: a row with exponential `power`,
// and four others with other_power[0 .. 3][channel]. A pair without contribution (masked, or weight 0) has an
// exponential of 0, so that it does not change its neighbours. exact(j): pair j, computed with tanh.
template <class Row, class Exact>
__device__ __forceinline__ void reciprocals(float (&lack)[4], float power, const Row* other_power, int channel,
                                            const float* d_logit, const Exact& exact) {
  float x[4], divisor[4];
  for (int j = 0; j < 4; ++j) {
    x[j] = fmaf(power, d_logit[j] == 0 ? 0 : other_power[j][channel], 1.0f);
    divisor[j] = x[j] < most ? x[j] : most;
  }
  const float low = divisor[0] * divisor[1], high = divisor[2] * divisor[3], inverse = 1 / (low * high);
  const float low_inverse = inverse * high, high_inverse = inverse * low;
  lack[0] = low_inverse * divisor[1];
  lack[1] = low_inverse * divisor[0];
  lack[2] = high_inverse * divisor[3];
  lack[3] = high_inverse * divisor[2];
  for (int j = 0; j < 4; ++j) {
    if (x[j] != x[j]) lack[j] = exact(j);
  }
}

// Terms of a lane's pair in the gradients.
struct Pair {
  float weight, d_logit;
};
__device__ __forceinline__ Pair pair_of(float logit, float lse, float d_weight, float delta) {
  const float weight = expf(logit - lse);        // (bahdanau_attention.5)
  return {weight, weight * (d_weight - delta)};  // (bahdanau_attention.7)
}

// Grid: blocks of up to 8 warps, one query per warp. Computes delta for the kernel below, and each block's part of
// d_score_nk; parts are stored by block, then by head.
template <class T>
__global__ void backward_query_kernel(AttentionBackward<T> a, const T* score_nk, float* delta_bnc, float* part,
                                      int blocks_of_head) {
  wait_for_kernel_before();
  const auto& in = a.in;
  auto& shared = shared_memory<PairTiles>();
  Tiles& tiles = shared.tiles;
  const Place my(in.C, in.N, blocks_of_head);
  const int K = int(in.K), lane = my.lane, c = my.row;
  const OwnRows<1, 6> own(K, my.warp);
  float *power_k = own[0], *d_out_k = own[1], *slope_k = own[2], *slope_low_k = own[3], *lack_k = own[4],
        *lack_low_k = own[5], *d_logit_s = shared.d_logit[my.warp];
  const Rows<const T> key_sk = key_rows<true>(in.key_bsh, in.key_stride, in, my.at);
  const Rows<const T> value_sk = key_rows<true>(in.value_bsh, in.value_stride, in, my.at);
  const T* query_k = query_rows(in.query_bch, in.query_stride, in, my.at)[c];
  const T* own_score_k = score_nk + my.at.n * in.K;
  const HeadMask<true> mask = mask_of<true>(in, my.at);
  fetch_score(own.common, own_score_k, K, own.K4);
  fetch_row(power_k, query_k, my.is_there, K, own.K4, power_of);
  fetch_row(d_out_k, query_rows(a.d_out_bch, 0, in, my.at)[c], my.is_there, K, own.K4, itself);
  for (float* sum_k : {slope_k, slope_low_k, lack_k, lack_low_k}) clear_row(sum_k, own.K4);
  __syncwarp();

  // Summed over channels in the order of d_weight: if one weight is 1, out is that value and d_logit exactly 0.
  float delta = 0, lse = infinity;
  if (my.is_there) {
    const T* out_k = query_rows(a.out_bch, 0, in, my.at)[c];
    for (int k = 0; k < K; ++k) delta = fmaf(d_out_k[k], float(out_k[k]), delta);  // (bahdanau_attention.6)
    lse = a.lse_bnc[Index{my.at.head} * in.C + c];
    if (lane == 0) delta_bnc[Index{my.at.head} * in.C + c] = delta;
  }

  const Range keys = mask.keys_of(my.at.first, my.count);
  for (int begin = keys.begin; begin < keys.end; begin += side) {
    const int s = begin + lane;
    const bool sees = my.is_there && s < keys.end && mask.sees(c, s);
    float d_weight = 0;
    float logit = logit_of_slabs(tiles, power_k, own.common, own.K4, lane, [&](int first) {
      __syncthreads();
      fetch_slab(tiles.power, key_sk, begin, keys.end, first, K, power_of);
      fetch_slab(tiles.other, value_sk, begin, keys.end, first, K, itself);
      __syncthreads();
      for (int k = first; k < min_of(first + slab, K); ++k) {
        d_weight = fmaf(d_out_k[k], tiles.other[lane][k - first], d_weight);
      }
    });
    if (sees && !(fabsf(logit) < infinity)) logit = far_logit(query_k, key_sk[s], own_score_k, K);
    logit = sees ? mask.join_bias(logit, c, s) : -infinity;
    __syncwarp();
    d_logit_s[lane] = pair_of(logit, lse, d_weight, delta).d_logit;
    __syncwarp();
    for (int first = 0; first < K; first += slab) {
      if (K > slab) {
        __syncthreads();
        fetch_slab(tiles.power, key_sk, begin, keys.end, first, K, power_of);
        __syncthreads();
      }
      for (int k = first + lane; k < min_of(first + slab, K); k += warp_size) {
        float slopes = 0, lacks = 0;
        for (int j = 0; j < side; j += 4) {
          float lack[4];
          reciprocals(lack, power_k[k], tiles.power + j, k - first, d_logit_s + j, [&](int i) {
            if (begin + j + i >= keys.end || !my.is_there) return 0.0f;
            return 0.5f - 0.5f * tanhf(float(query_k[k]) + float(key_sk[begin + j + i][k]));
          });
          for (int i = 0; i < 4; ++i) {
            slopes = fmaf(d_logit_s[j + i], lack[i] - lack[i] * lack[i], slopes);  // a quarter of 1 - tanh^2
            lacks = fmaf(d_logit_s[j + i], lack[i], lacks);
          }
        }
        add_compensated(slope_k[k], slope_low_k[k], slopes);
        add_compensated(lack_k[k], lack_low_k[k], lacks);
      }
    }
  }
  if (my.is_there) {
    T* d_query_k = query_rows(a.d_query_bch, a.d_query_stride, in, my.at)[c];
    for (int k = lane; k < K; k += warp_size) {
      d_query_k[k] = T(4 * own.common[k] * (slope_k[k] + slope_low_k[k]));  // (bahdanau_attention.8)
    }
  }
  // The d_logit of a row sum to 0, so only the part -2 lack of tanh = 1 - 2 lack counts.
  __syncthreads();
  const int warps = int(blockDim.x) / warp_size;
  float* part_k = part + ((Index{my.at.b} * blocks_of_head + my.at.first / warps) * in.N + my.at.n) * in.K;
  for (int k = int(threadIdx.x); k < K; k += int(blockDim.x)) {
    float sum = 0;
    for (int warp = 0; warp < warps; ++warp) {
      const OwnRows<1, 6> rows(K, warp);
      sum += rows[4][k] + rows[5][k];
    }
    part_k[k] = -2 * sum;  // (bahdanau_attention.11)
  }
}

// Grid: blocks of up to 8 warps, one key per warp.
template <class T>
__global__ void backward_key_kernel(AttentionBackward<T> a, const T* score_nk, const float* delta_bnc,
                                    int blocks_of_head) {
  wait_for_kernel_before();
  const auto& in = a.in;
  auto& shared = shared_memory<PairTiles>();
  Tiles& tiles = shared.tiles;
  const Place my(in.S, in.N, blocks_of_head);
  const int K = int(in.K), lane = my.lane, s = my.row;
  const OwnRows<1, 6> own(K, my.warp);
  float *power_k = own[0], *value_k = own[1], *slope_k = own[2], *slope_low_k = own[3], *d_value_k = own[4],
        *d_value_low_k = own[5], *d_logit_c = shared.d_logit[my.warp], *weight_c = shared.weight[my.warp];
  const Rows<const T> query_ck = query_rows(in.query_bch, in.query_stride, in, my.at);
  const Rows<const T> d_out_ck = query_rows(a.d_out_bch, 0, in, my.at);
  const T* key_k = key_rows<true>(in.key_bsh, in.key_stride, in, my.at)[s];
  const T* own_score_k = score_nk + my.at.n * in.K;
  const HeadMask<true> mask = mask_of<true>(in, my.at);
  fetch_score(own.common, own_score_k, K, own.K4);
  fetch_row(power_k, key_k, my.is_there, K, own.K4, power_of);
  fetch_row(value_k, key_rows<true>(in.value_bsh, in.value_stride, in, my.at)[s], my.is_there, K, own.K4, itself);
  for (float* sum_k : {slope_k, slope_low_k, d_value_k, d_value_low_k}) clear_row(sum_k, own.K4);
  __syncwarp();

  const Range queries = mask.queries_of(my.at.first, my.count, int(in.C));
  for (int begin = queries.begin; begin < queries.end; begin += side) {
    const int c = begin + lane;
    const bool sees = my.is_there && c < queries.end && mask.sees(c, s);
    float d_weight = 0;
    float logit = logit_of_slabs(tiles, power_k, own.common, own.K4, lane, [&](int first) {
      __syncthreads();
      fetch_slab(tiles.power, query_ck, begin, queries.end, first, K, power_of);
      fetch_slab(tiles.other, d_out_ck, begin, queries.end, first, K, itself);
      __syncthreads();
      for (int k = first; k < min_of(first + slab, K); ++k) {
        d_weight = fmaf(tiles.other[lane][k - first], value_k[k], d_weight);
      }
    });
    if (sees && !(fabsf(logit) < infinity)) logit = far_logit(query_ck[c], key_k, own_score_k, K);
    logit = sees ? mask.join_bias(logit, c, s) : -infinity;
    const Index bnc = Index{my.at.head} * in.C + c;
    const Pair pair = sees ? pair_of(logit, a.lse_bnc[bnc], d_weight, delta_bnc[bnc]) : Pair{0, 0};
    __syncwarp();
    d_logit_c[lane] = pair.d_logit;
    weight_c[lane] = pair.weight;
    __syncwarp();
    for (int first = 0; first < K; first += slab) {
      if (K > slab) {
        __syncthreads();
        fetch_slab(tiles.power, query_ck, begin, queries.end, first, K, power_of);
        fetch_slab(tiles.other, d_out_ck, begin, queries.end, first, K, itself);
        __syncthreads();
      }
      for (int k = first + lane; k < min_of(first + slab, K); k += warp_size) {
        float slopes = 0, mixed = 0;
        for (int j = 0; j < side; j += 4) {
          float lack[4];
          reciprocals(lack, power_k[k], tiles.power + j, k - first, d_logit_c + j, [&](int i) {
            if (begin + j + i >= queries.end || !my.is_there) return 0.0f;
            return 0.5f - 0.5f * tanhf(float(query_ck[begin + j + i][k]) + float(key_k[k]));
          });
          for (int i = 0; i < 4; ++i) {
            slopes = fmaf(d_logit_c[j + i], lack[i] - lack[i] * lack[i], slopes);
            mixed = fmaf(weight_c[j + i], tiles.other[j + i][k - first], mixed);
          }
        }
        add_compensated(slope_k[k], slope_low_k[k], slopes);
        add_compensated(d_value_k[k], d_value_low_k[k], mixed);
      }
    }
  }
  if (!my.is_there) return;
  T* d_key_k = key_rows<true>(a.d_key_bsh, a.d_key_stride, in, my.at)[s];
  T* to_k = key_rows<true>(a.d_value_bsh, a.d_value_stride, in, my.at)[s];
  for (int k = lane; k < K; k += warp_size) {
    d_key_k[k] = T(4 * own.common[k] * (slope_k[k] + slope_low_k[k]));  // (bahdanau_attention.9)
    to_k[k] = T(d_value_k[k] + d_value_low_k[k]);                       // (bahdanau_attention.10)
  }
}

}  // namespace

template <class Device, class T>
void bahdanau_attention_forward(Device& device, const AttentionForward<T>& a, const T* score_nk) {
  const auto& in = a.in;
  const int warps = warps_for(in.K, OwnRows<1, 3>::bytes);
  const int blocks_of_head = int(blocks_for(in.C, warps));
  launch(forward_kernel<T>, blocks_for(in.B * in.N * blocks_of_head, 1), unsigned(warps * warp_size),
         OwnRows<1, 3>::bytes(in.K, warps), device.stream(), a, score_nk, blocks_of_head);
}

template <class Device, class T>
void bahdanau_attention_backward(Device& device, const AttentionBackward<T>& a, const T* score_nk,
                                 Accum<T>* d_score_nk) {
  const auto& in = a.in;
  const int warps = warps_for(in.K, OwnRows<1, 6>::bytes);
  const std::size_t bytes = OwnRows<1, 6>::bytes(in.K, warps);
  const int query_blocks = int(blocks_for(in.C, warps)), key_blocks = int(blocks_for(in.S, warps));
  const unsigned threads = unsigned(warps * warp_size);
  typename Device::Scope scratch(device.workspace);
  float* delta_bnc = scratch.template take<float>(in.B * in.N * in.C);
  float* part = take_parts(device, scratch, in.B * query_blocks * in.N * in.K);
  launch(backward_query_kernel<T>, blocks_for(in.B * in.N * query_blocks, 1), threads, bytes, device.stream(), a,
         score_nk, delta_bnc, part, query_blocks);
  launch(backward_key_kernel<T>, blocks_for(in.B * in.N * key_blocks, 1), threads, bytes, device.stream(), a, score_nk,
         delta_bnc, key_blocks);
  add_partial_sums(
      device,
      {.to_d = d_score_nk, .part_pd = part, .parts = in.B * query_blocks, .D = in.N * in.K, .stride = in.N * in.K});
}

ABH_INSTANTIATE(Gpu, bahdanau_attention_forward, bahdanau_attention_backward)

}  // namespace abh
