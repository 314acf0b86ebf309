#include "cuda/attention_plain.hpp"
#include "cuda/attention_tiles.hpp"
#include "cuda/kernel.hpp"
#include "layers/attention.hpp"

namespace abh {

namespace {

// ---- Forward ----

// Grid: one block per 128 (64) queries of each head; late queries first, because with a causal mask they cost most.
// Keys and values are read once per block: 4 * 128 * K flops for 4 K bytes in bf16, 128 flops per byte, mostly from the
// L2 cache. The running maximum is that of the unscaled scores.
template <class T, int KP, bool wide, bool general>
__global__ void __launch_bounds__(threads_per_block<T>, blocks<T, KP, rows_of_block<T, KP>, general>)
    forward_kernel(AttentionForward<T> a, Plan plan) {
  wait_for_kernel_before();
  require_at_most(threads_per_block<T>);
  const auto& in = a.in;
  constexpr int W = forward_width<T, KP>, H = rows_of_block<T, KP>;
  using Score = TilePart<T, W, H>;
  auto& shared = *static_cast<Shared<T, KP, H, 1>*>(dynamic_shared_memory());
  const AttentionPlace at = place_of_block<H>(plan, int(in.N), true);
  const Rows<const T> query_ck = query_rows(in.query_bch, in.query_stride, in, at);
  const Rows<const T> key_sk = key_rows<general>(in.key_bsh, in.key_stride, in, at);
  const Rows<const T> value_sk = key_rows<general>(in.value_bsh, in.value_stride, in, at);
  const HeadMask<general> mask = mask_of<general>(in, at);
  const int C = int(in.C), S = general ? int(in.S) : C, K = int(in.K);
  const float scale_2 = plan.scale * log2_e;  // exp(scale x) = 2^(scale_2 x)

  Left<T, KP, H> query;
  TilePart<T, KP, H> out;
  float max[Score::rows], sum[Score::rows];  // the sum over the columns of this lane
  // Maximum and sum of the completed sections, whose outputs are stored in global memory.
  float total_max[Score::rows], total_sum[Score::rows], total_sum_low[Score::rows];
  for (int r = 0; r < Score::rows; ++r) {
    max[r] = total_max[r] = -infinity;
    sum[r] = total_sum[r] = total_sum_low[r] = 0;
  }
  const Range keys = mask.keys_of(at.first, H), rows = {at.first + Score::first_row(), at.first + Score::end_row()};
  const auto merge_section = [&](bool first_section, bool last_section) {
    float shrink[Score::rows];
    for (int r = 0; r < Score::rows; ++r) {
      const float new_max = fmaxf(total_max[r], max[r]);
      const float base = new_max == -infinity ? 0 : new_max, factor = power_of_2((max[r] - base) * scale_2);
      shrink[r] = power_of_2((total_max[r] - base) * scale_2);
      total_max[r] = new_max;
      total_sum[r] *= shrink[r];
      total_sum_low[r] *= shrink[r];
      add_compensated(total_sum[r], total_sum_low[r], sum[r] * factor);
      max[r] = last_section ? new_max : -infinity;
      sum[r] = last_section ? total_sum[r] + total_sum_low[r] : 0;
      for (int k = 0; k < out.columns; ++k) out.at(r, k) *= factor;
    }
    end_section(out, query_rows(a.out_bch, 0, in, at), at.first, C, K, first_section, last_section, shrink);
  };
  fetch<wide>(shared.own[0], query_ck, at.first, C, K);
  for_tiles<stages<T, KP, 1>, general>(
      keys,
      [&](int first_key, int stage) {
        fetch<wide>(shared.other[stage][0], key_sk, first_key, S, K);
        fetch<wide>(shared.other[stage][1], value_sk, first_key, S, K);
      },
      [&] { query.take(shared.own[0]); },
      [&](int first_key, int stage) {
        if (rows.begin >= C) return;
        for (int part = 0; part < tile; part += W) {
          const Range part_keys = {first_key + part, first_key + part + W};
          if (mask.is_behind(part_keys, rows)) break;
          const bool edge = !mask.sees_all(rows, part_keys);
          const std::uint32_t real = edge ? real_keys<Score>(mask, part_keys.begin, true) : 0;
          Score score;                                                // scores before scaling
          multiply_rows(score, query, shared.other[stage][0], part);  // (attention.1)
          add_bias(score, mask, at.first, part_keys.begin, true, plan.scale);
          if (edge) hide_others(score, mask, at.first, part_keys.begin, C, true, real);
          for (int r = 0; r < Score::rows; ++r) {
            float new_max = max[r];
            for (int c = 0; c < Score::columns; ++c) new_max = fmaxf(new_max, score.at(r, c));
            new_max = row_max<T>(new_max);
            // Before its first key a query has maximum -infinity; the base is then 0, because -inf - (-inf) is NaN.
            const float base = new_max == -infinity ? 0 : new_max;
            const float shrink = power_of_2((max[r] - base) * scale_2);
            float powers = 0;
            for (int c = 0; c < Score::columns; ++c) {
              score.at(r, c) = power_of_2((score.at(r, c) - base) * scale_2);
              powers += score.at(r, c);
            }
            max[r] = new_max;
            sum[r] = sum[r] * shrink + powers;  // (attention.2)
            for (int k = 0; k < out.columns; ++k) out.at(r, k) *= shrink;
          }
          multiply_columns(out, score, shared.other[stage][1], part, shared.weights);
        }
        if (ends_section<T>(first_key, keys)) merge_section(is_first_section(first_key, keys), false);
      });
  if (in_sections<T>(keys)) merge_section(false, true);

  float* lse_c = a.lse_bnc + Index{at.head} * C;
  for (int r = 0; r < Score::rows; ++r) {
    const float total = row_sum<T>(sum[r]);
    const bool sees_none = total == 0;
    const float inverse = sees_none ? 0 : 1 / total;
    for (int k = 0; k < out.columns; ++k) out.at(r, k) *= inverse;                   // (attention.3)
    const float lse = sees_none ? infinity : fmaf(max[r], plan.scale, logf(total));  // (attention.4)
    const int c = at.first + Score::row(r);
    if (Score::column(0) == 0 && c < C) lse_c[c] = lse;
  }
  store_sums(shared.own[0], out, 1);
  __syncthreads();
  put<wide>(query_rows(a.out_bch, 0, in, at), shared.own[0], at.first, C, K);
}

// ---- Backward ----
//
// Two kernels: blocks of the first own queries and sum d_query; blocks of the second own keys and sum d_key and
// d_value. Both recompute the scores, so there are seven products where a single kernel needs five. But a single kernel
// must add parts of d_query from different blocks, which takes atomics (the last bits then change from run to run) or
// C/64 copies of d_query. Here every sum has one owner and a fixed order.

// Grid: one block per 128 (64) queries, late ones first. Also computes delta, which the other kernel reads, in the
// summation order of d_out . value (multiply_diagonal). If one weight is 1 and the others 0, out is that value, also
// after rounding, delta equals that product bitwise, and d_score is exactly 0. Another order leaves a rounding error,
// which is multiplied by queries that are large in this case; rounding to bf16 does not remove it.
template <class T, int KP, bool wide, bool general>
__global__ void __launch_bounds__(threads_per_block<T>, blocks<T, KP, rows_of_block<T, KP>, general>)
    backward_query_kernel(AttentionBackward<T> a, Statistics* statistics, Plan plan) {
  wait_for_kernel_before();
  require_at_most(threads_per_block<T>);
  const auto& in = a.in;
  constexpr int W = backward_width<T, KP>, H = rows_of_block<T, KP>;
  using Score = TilePart<T, W, H>;
  auto& shared = *static_cast<Shared<T, KP, H, 2>*>(dynamic_shared_memory());
  const AttentionPlace at = place_of_block<H>(plan, int(in.N), true);
  const Rows<const T> key_sk = key_rows<general>(in.key_bsh, in.key_stride, in, at);
  const Rows<const T> value_sk = key_rows<general>(in.value_bsh, in.value_stride, in, at);
  const HeadMask<general> mask = mask_of<general>(in, at);
  const int C = int(in.C), S = general ? int(in.S) : C, K = int(in.K);

  Left<T, KP, H> query, d_out;
  TilePart<T, KP, H> d_query;
  float lse[Score::rows], delta[Score::rows];
  fetch<wide>(shared.own[0], query_rows(in.query_bch, in.query_stride, in, at), at.first, C, K);
  fetch<wide>(shared.own[1], query_rows(a.d_out_bch, 0, in, at), at.first, C, K);
  // Shared memory of the second tile of keys, or of all tiles.
  Tile<T, KP>(&out)[2] = shared.other[stages<T, KP, 2> - 1];
  for (int i = 0; i < H / tile; ++i) fetch<wide>(out[i], query_rows(a.out_bch, 0, in, at), at.first + i * tile, C, K);
  const auto prepare = [&] {
    query.take(shared.own[0]);
    d_out.take(shared.own[1]);
    multiply_diagonal(delta, d_out, out);  // (attention.6)
    Statistics* of_head = statistics + Index{at.head} * plan.query_tiles;
    for (int r = 0; r < Score::rows; ++r) {
      const int c = at.first + Score::row(r);
      lse[r] = c < C ? a.lse_bnc[Index{at.head} * C + c] : infinity;
      if (Score::column(0) == 0 && c / tile < plan.query_tiles) {
        of_head[c / tile].lse[c % tile] = lse[r];
        of_head[c / tile].delta[c % tile] = delta[r];
      }
    }
    __syncthreads();  // all threads have read out
  };
  if constexpr (stages<T, KP, 2> == 1) {  // before the first tile of keys overwrites out
    fetched();
    prepare();
  }

  // Recomputed at each use, because stored pointers would take registers.
  const auto d_query_ck = [&] { return query_rows(a.d_query_bch, a.d_query_stride, in, at); };
  const auto keys = [&] { return mask.keys_of(at.first, H); };
  const Range rows = {at.first + Score::first_row(), at.first + Score::end_row()};
  for_tiles<stages<T, KP, 2>, general>(
      keys(),
      [&](int first_key, int stage) {
        fetch<wide>(shared.other[stage][0], key_sk, first_key, S, K);
        fetch<wide>(shared.other[stage][1], value_sk, first_key, S, K);
      },
      [&] {
        if constexpr (stages<T, KP, 2> == 2) prepare();
      },
      [&](int first_key, int stage) {
        const auto &key = shared.other[stage][0], &value = shared.other[stage][1];
        if (rows.begin >= C) return;
        for (int part = 0; part < tile; part += W) {
          const Range part_keys = {first_key + part, first_key + part + W};
          if (mask.is_behind(part_keys, rows)) break;
          const bool edge = !mask.sees_all(rows, part_keys);
          const std::uint32_t real = edge ? real_keys<Score>(mask, part_keys.begin, true) : 0;
          Score score, d_score;
          multiply_rows(score, query, key, part);
          multiply_rows(d_score, d_out, value, part);  // d_weight, not d_score yet
          add_bias(score, mask, at.first, part_keys.begin, true, plan.scale);
          if (edge) hide_others(score, mask, at.first, part_keys.begin, C, true, real);
          for (int r = 0; r < Score::rows; ++r) {
            for (int c = 0; c < Score::columns; ++c) {
              // Fused multiply-add: rounding the product before lse is subtracted would be visible for scores of
              // thousands.
              const float weight = power_of_2(fmaf(score.at(r, c), plan.scale, -lse[r]) * log2_e);
              d_score.at(r, c) = weight * (d_score.at(r, c) - delta[r]);
            }
          }
          multiply_columns(d_query, d_score, key, part, shared.weights);  // (attention.8)
        }
        if (!ends_section<T>(first_key, keys())) return;
        end_section(d_query, d_query_ck(), at.first, C, K, is_first_section(first_key, keys()), false);
      });
  if (in_sections<T>(keys())) end_section(d_query, d_query_ck(), at.first, C, K, false, true);
  store_sums(shared.own[0], d_query, plan.scale);
  __syncthreads();
  put<wide>(d_query_ck(), shared.own[0], at.first, C, K);
}

// Grid: one block per 128 (64) keys, early keys first, because with a causal mask most queries attend to them. Rows of
// the score tile are keys here, so weights and d_score have the layout of left factors for sums over queries.
template <class T, int KP, bool wide, bool general>
__global__ void __launch_bounds__(threads_per_block<T>, blocks<T, KP, rows_of_block<T, KP>, general>)
    backward_key_kernel(AttentionBackward<T> a, const Statistics* statistics, Plan plan) {
  wait_for_kernel_before();
  require_at_most(threads_per_block<T>);
  const auto& in = a.in;
  constexpr int W = backward_width<T, KP>, H = rows_of_block<T, KP>;
  using Score = TilePart<T, W, H>;
  auto& shared = *static_cast<Shared<T, KP, H, 2>*>(dynamic_shared_memory());
  const AttentionPlace at = place_of_block<H>(plan, int(in.N), false);
  const Rows<const T> query_ck = query_rows(in.query_bch, in.query_stride, in, at);
  const Rows<const T> d_out_ck = query_rows(a.d_out_bch, 0, in, at);
  const Statistics* of_head = statistics + Index{at.head} * plan.query_tiles;
  const HeadMask<general> mask = mask_of<general>(in, at);
  const int C = int(in.C), S = general ? int(in.S) : C, K = int(in.K);

  Left<T, KP, H, H == tile> key;  // with the sums of 128 keys, registers do not suffice for both
  Left<T, KP, H> value;
  TilePart<T, KP, H> d_key, d_value;
  fetch<wide>(shared.own[0], key_rows<general>(in.key_bsh, in.key_stride, in, at), at.first, S, K);
  fetch<wide>(shared.own[1], key_rows<general>(in.value_bsh, in.value_stride, in, at), at.first, S, K);
  const auto d_key_sk = [&] { return key_rows<general>(a.d_key_bsh, a.d_key_stride, in, at); };
  const auto d_value_sk = [&] { return key_rows<general>(a.d_value_bsh, a.d_value_stride, in, at); };
  const auto queries = [&] { return mask.queries_of(at.first, H, C); };
  const Range rows = {at.first + Score::first_row(), at.first + Score::end_row()};
  for_tiles<stages<T, KP, 2>, general>(
      queries(),
      [&](int first_query, int stage) {
        fetch<wide>(shared.other[stage][0], query_ck, first_query, C, K);
        fetch<wide>(shared.other[stage][1], d_out_ck, first_query, C, K);
        constexpr int bytes = 16;
        for (int i = int(threadIdx.x); i * bytes < int(sizeof(Statistics)); i += threads_per_block<T>) {
          copy_async(reinterpret_cast<unsigned char*>(&shared.statistics[stage]) + i * bytes,
                     reinterpret_cast<const unsigned char*>(&of_head[first_query / tile]) + i * bytes);
        }
      },
      [&] {
        key.take(shared.own[0]);
        value.take(shared.own[1]);
      },
      [&](int first_query, int stage) {
        const auto &query = shared.other[stage][0], &d_out = shared.other[stage][1];
        if (rows.begin >= S) return;
        for (int part = 0; part < tile; part += W) {
          const Range part_queries = {first_query + part, first_query + part + W};
          if (mask.is_behind(rows, part_queries)) continue;
          const bool edge = !mask.sees_all(part_queries, rows);
          const std::uint32_t real = edge ? real_keys<Score>(mask, at.first, false) : 0;
          Score weight, d_score;
          multiply_rows(weight, key, query, part);     // scores, not weights yet
          multiply_rows(d_score, value, d_out, part);  // d_weight, not d_score yet
          add_bias(weight, mask, part_queries.begin, at.first, false, plan.scale);
          if (edge) hide_others(weight, mask, part_queries.begin, at.first, C, false, real);
          for (int c = 0; c < Score::columns; ++c) {
            const float lse = shared.statistics[stage].lse[part + Score::column(c)];
            const float delta = shared.statistics[stage].delta[part + Score::column(c)];
            for (int r = 0; r < Score::rows; ++r) {
              const float log_weight = fmaf(weight.at(r, c), plan.scale, -lse);
              weight.at(r, c) = power_of_2(log_weight * log2_e);                // (attention.5)
              d_score.at(r, c) = weight.at(r, c) * (d_score.at(r, c) - delta);  // (attention.7)
            }
          }
          multiply_columns(d_value, weight, d_out, part, shared.weights);  // (attention.10)
          multiply_columns(d_key, d_score, query, part, shared.weights);   // (attention.9)
        }
        if (!ends_section<T>(first_query, queries())) return;
        end_section(d_key, d_key_sk(), at.first, S, K, is_first_section(first_query, queries()), false);
        end_section(d_value, d_value_sk(), at.first, S, K, is_first_section(first_query, queries()), false);
      });
  if (in_sections<T>(queries())) {
    end_section(d_key, d_key_sk(), at.first, S, K, false, true);
    end_section(d_value, d_value_sk(), at.first, S, K, false, true);
  }
  store_sums(shared.own[0], d_key, plan.scale);
  store_sums(shared.own[1], d_value, 1);
  __syncthreads();
  put<wide>(d_key_sk(), shared.own[0], at.first, S, K);
  put<wide>(d_value_sk(), shared.own[1], at.first, S, K);
}

// ---- Inference ----

// Positions per block. The positions within the window are distributed over the blocks of a head in chunks. Each chunk
// gives a triple: maximum, sum and K outputs not yet divided by the sum. A second kernel merges the triples in order,
// with compensated sums and outputs.
constexpr int chunk = 64;
constexpr int step_threads = 128;

struct StepMemory {
  float score[chunk], power[chunk];
};

// Grid: chunks x N blocks of 4 warps. First a warp takes every fourth row, with lanes along channels; then threads run
// along channels, row after row. Reads the two caches once.
template <class T>
__global__ void step_kernel(AttentionStep<T> a, Index first_in_reach, float* triple, int chunks, float scale) {
  wait_for_kernel_before();
  auto& shared = shared_memory<StepMemory>();
  const int K = int(a.K), warp = int(threadIdx.x) / warp_size, lane = int(threadIdx.x) % warp_size;
  const Index n = Index{blockIdx.x} / chunks, first = first_in_reach + Index{blockIdx.x} % chunks * chunk;
  const int rows = a.length - first < chunk ? int(a.length - first) : chunk;
  const auto row = [&](const T* rows_ch, int c) { return rows_ch + a.row(first + c) * a.N * a.K + n * K; };

  const AttentionMask<float> mask = a.mask.of_head(n);
  for (int c = warp; c < rows; c += step_threads / warp_size) {
    float score = scale * dot_product(a.query_h + n * K, row(a.key_ch, c), K);  // (attention.1)
    if (mask.window > 0 && first + c < a.length - mask.window) score = -infinity;
    if (mask.distance_bias_nc) score += mask.distance_bias_nc[n * mask.distances + a.length - 1 - (first + c)];
    if (lane == 0) shared.score[c] = score;
  }
  __syncthreads();
  // Every warp computes the maximum and the sum redundantly.
  const float score[2] = {lane < rows ? shared.score[lane] : -infinity,
                          lane + warp_size < rows ? shared.score[lane + warp_size] : -infinity};
  const float max = warp_max(fmaxf(score[0], score[1])), base = max == -infinity ? 0 : max;
  const float power[2] = {expf(score[0] - base), expf(score[1] - base)};
  const float sum = warp_sum(power[0] + power[1]);  // (attention.2)
  if (warp == 0) {
    shared.power[lane] = power[0];
    shared.power[lane + warp_size] = power[1];
  }
  __syncthreads();

  float* of_block = triple + Index{blockIdx.x} * (K + 2);
  for (int k = int(threadIdx.x); k < K; k += step_threads) {
    float out = 0;
    for (int c = 0; c < rows; ++c) out += shared.power[c] * float(row(a.value_ch, c)[k]);
    of_block[k] = out;
  }
  if (threadIdx.x == 0) {
    of_block[K] = max;
    of_block[K + 1] = sum;
  }
}

// Grid: one block per head, threads along channels.
template <class T>
__global__ void merge_kernel(T* out_h, const float* triple, int chunks, int K) {
  wait_for_kernel_before();
  const Index n = blockIdx.x;
  const float* of_head = triple + n * chunks * (K + 2);
  float max = -infinity, sum = 0, sum_low = 0;
  for (int i = 0; i < chunks; ++i) max = fmaxf(max, of_head[Index{i} * (K + 2) + K]);
  for (int i = 0; i < chunks; ++i) {
    const float* of_chunk = of_head + Index{i} * (K + 2);
    add_compensated(sum, sum_low, of_chunk[K + 1] * expf(of_chunk[K] - max));
  }
  for (int k = int(threadIdx.x); k < K; k += step_threads) {
    float out = 0, out_low = 0;
    for (int i = 0; i < chunks; ++i) {
      const float* of_chunk = of_head + Index{i} * (K + 2);
      add_compensated(out, out_low, of_chunk[k] * expf(of_chunk[K] - max));
    }
    out_h[n * K + k] = T(chunks == 0 ? 0 : (out + out_low) / (sum + sum_low));  // (attention.3)
  }
}

// ---- On the host ----

template <class Arguments>
float scale_of(const Arguments& a) {
  return a.scale > 0 ? float(a.scale) : scale_of_head(a.K);
}

// For blocks that own `rows` of the `count` queries or keys of each head.
template <class T>
Plan plan_of(const AttentionInputs<T>& in, Index count, Index rows) {
  const Index blocks = (count + rows - 1) / rows, query_tiles = (in.C + tile - 1) / tile;
  constexpr Index blocks_together = 512;  // slightly more than fit on a large GPU at once
  const Index together = 0 < blocks && blocks < blocks_together ? blocks_together / blocks : 1;
  return {int(blocks), int(in.B * in.N), int(together), int(query_tiles), scale_of(in)};
}

template <class T>
bool is_general(const AttentionInputs<T>& in) {
  const AttentionMask<float>& mask = in.mask;
  return in.C != in.S || mask.query_offset != 0 || mask.window != 0 || mask.strided_queries() || mask.distance_bias_nc;
}

template <class T, int KP, int rows, int owned>
constexpr std::size_t shared_bytes() {
  static_assert(sizeof(Shared<T, KP, rows, owned>) <= 99 << 10);
  return sizeof(Shared<T, KP, rows, owned>);
}

// Calls run.operator()<KP, wide>() for the smallest KP >= K; false if there is none. Rows without 16-byte alignment all
// use the largest KP: they are rare, and each kernel costs compile time.
template <class T, class Run>
bool with_width(Index K, bool wide, const Run& run) {
  constexpr int most = most_channels<T>;
  if (K > most) return false;
  if (!wide || K % widest<T> != 0) {
    run.template operator()<most, false>();
  } else if (K <= 16) {
    run.template operator()<16, true>();
  } else if (K <= 32) {
    run.template operator()<32, true>();
  } else if (K <= 64) {
    run.template operator()<64, true>();
  } else {
    run.template operator()<most, true>();
  }
  return true;
}

}  // namespace

template <class Device, class T>
void attention_forward(Device& device, const AttentionForward<T>& a) {
  const auto& in = a.in;
  const unsigned rows = blocks_for(in.B * in.N * in.C, 1);
  if (rows == 0) return;
  const bool wide = widest_fits<T>(in.query_stride, in.query_bch) && widest_fits<T>(in.key_stride, in.key_bsh) &&
                    widest_fits<T>(in.value_stride, in.value_bsh) && widest_fits<T>(0, a.out_bch);
  const auto run = [&]<bool general>() {
    const auto in_tiles = [&]<int KP, bool wide_rows>() {
      constexpr int H = rows_of_block<T, KP>;
      const Plan plan = plan_of(in, in.C, H);
      launch(forward_kernel<T, KP, wide_rows, general>, unsigned(plan.heads * plan.blocks), threads_per_block<T>,
             shared_bytes<T, KP, H, 1>(), device.stream(), a, plan);
    };
    if (with_width<T>(in.K, wide, in_tiles)) return;
    launch(plain_forward_kernel<T, general>, rows, warp_size, 3 * std::size_t(in.K) * sizeof(float), device.stream(), a,
           scale_of(in));
  };
  is_general(in) ? run.template operator()<true>() : run.template operator()<false>();
}

template <class Device, class T>
void attention_backward(Device& device, const AttentionBackward<T>& a) {
  const auto& in = a.in;
  const unsigned rows = blocks_for(in.B * in.N * in.C, 1), keys = blocks_for(in.B * in.N * in.S, 1);
  const bool wide = widest_fits<T>(in.query_stride, in.query_bch) && widest_fits<T>(in.key_stride, in.key_bsh) &&
                    widest_fits<T>(in.value_stride, in.value_bsh) && widest_fits<T>(0, a.out_bch, a.d_out_bch) &&
                    widest_fits<T>(a.d_query_stride, a.d_query_bch) && widest_fits<T>(a.d_key_stride, a.d_key_bsh) &&
                    widest_fits<T>(a.d_value_stride, a.d_value_bsh);
  typename Device::Scope scratch(device.workspace);
  const auto run = [&]<bool general>() {
    const auto in_tiles = [&]<int KP, bool wide_rows>() {
      constexpr int H = rows_of_block<T, KP>;
      const Plan plan = plan_of(in, in.C, H), key_plan = plan_of(in, in.S, H);
      Statistics* statistics = scratch.template take<Statistics>(plan.heads * plan.query_tiles);
      launch(backward_query_kernel<T, KP, wide_rows, general>, unsigned(plan.heads * plan.blocks), threads_per_block<T>,
             shared_bytes<T, KP, H, 2>(), device.stream(), a, statistics, plan);
      launch(backward_key_kernel<T, KP, wide_rows, general>, unsigned(key_plan.heads * key_plan.blocks),
             threads_per_block<T>, shared_bytes<T, KP, H, 2>(), device.stream(), a, statistics, key_plan);
    };
    if (with_width<T>(in.K, wide, in_tiles)) return;
    float* delta_bnc = scratch.template take<float>(rows);
    const std::size_t bytes = 3 * std::size_t(in.K) * sizeof(float);
    launch(plain_backward_query_kernel<T, general>, rows, warp_size, bytes, device.stream(), a, delta_bnc,
           scale_of(in));
    launch(plain_backward_key_kernel<T, general>, keys, warp_size, 2 * bytes, device.stream(), a, delta_bnc,
           scale_of(in));
  };
  is_general(in) ? run.template operator()<true>() : run.template operator()<false>();
}

template <class Device, class T>
void attention_step(Device& device, const AttentionStep<T>& a) {
  const Index in_reach = a.mask.window > 0 ? min_of(a.mask.window, a.length) : a.length;
  const int chunks = int(blocks_for(in_reach, chunk));
  typename Device::Scope scratch(device.workspace);
  float* triple = scratch.template take<float>(a.N * chunks * (a.K + 2));
  launch(step_kernel<T>, blocks_for(a.N * chunks, 1), step_threads, 0, device.stream(), a, a.length - in_reach, triple,
         chunks, scale_of(a));
  launch(merge_kernel<T>, blocks_for(a.N, 1), step_threads, 0, device.stream(), a.out_h, triple, chunks, int(a.K));
}

ABH_INSTANTIATE(Gpu, attention_forward, attention_backward, attention_step)

}  // namespace abh
