// Gradient of a distance bias (layers/attention.hpp) for the few distances that learned spans need. The pairs at one
// distance form a diagonal; SIMD lanes run along it.

#include "cpu/attention_tiles.hpp"
#include "cpu/attention_widened.hpp"
#include "plain/plain.hpp"

namespace abh {

// The SIMD code supports float only; other types use the plain loops.
ABH_INSTANTIATED_ELSEWHERE(PlainDevice, attention_bias_backward)

namespace {

// SIMD vectors of queries whose sums are kept in registers.
constexpr int vectors = 4;
template <class T>
constexpr Index queries_at_once = vectors* lane_width<T>;

// Number of keys at these distances from this many queries, in whole SIMD vectors.
template <class T>
Index band_of(Index most) {
  return padded<T>(queries_at_once<T> + most - 1);
}
template <class T>
Index band_scratch(Index K, Index most) {
  return 2 * K * (queries_at_once<T> + band_of<T>(most)) + band_of<T>(most) + most * lane_width<T>;
}

// out_kc: transposes `count` rows from `first` on, one row of lanes per channel. Rows outside the array are copies of
// the nearest row.
template <class T>
void transpose_band(T* out_kc, Rows<const T> in_ck, Index first, Index count, Index end, Index K) {
  using L = Wide<T>;
  for (Index c = 0; c < count; c += lane_width<T>) {
    LaneRows<T> rows(in_ck, larger(first + c, Index(0)), end);
    for (Index i = 0; i < lane_width<T>; ++i) {
      rows.row_k[i] = in_ck[larger(Index(0), min_of(first + c + i, end - 1))];
    }
    Index k = 0;
    for (; k + 4 <= K; k += 4) {
      L x[4];
      rows.four_channels(x, k);
      for (Index i = 0; i < 4; ++i) store<L>(out_kc + (k + i) * count + c, x[i]);
    }
    for (; k < K; ++k) store<L>(out_kc + k * count + c, rows.channel(k));
  }
}

// Contribution of queries [begin, end) of a head to the gradients of its distances: d_bias_i, i = distance index.
template <class T>
void bias_of_queries(T* d_bias_i, const AttentionBiasBackward<T>& a, Index b, Index n, Index begin, Index end,
                     T* scratch) {
  using L = Wide<T>;
  constexpr Index width = lane_width<T>, at_once = queries_at_once<T>;
  const auto& in = a.in;
  const AttentionMask<T> mask = in.mask.of_head(n);
  const Stretch distances = distances_of(a, n);
  const Index K = in.K, band = band_of<T>(a.most), count = distances.end - distances.begin;
  const auto rows = [&](const T* first, Index stride, Index of_sequence) {
    return head_rows(first, stride, b, n, of_sequence, in.N, K);
  };
  const Rows<const T> query_ck = rows(in.query_bch, in.query_stride, in.C), d_out_ck = rows(a.d_out_bch, 0, in.C);
  const Rows<const T> key_sk = rows(in.key_bsh, in.key_stride, in.S);
  const Rows<const T> value_sk = rows(in.value_bsh, in.value_stride, in.S), out_ck = rows(a.out_bch, 0, in.C);
  const T* lse_c = a.lse_bnc + (b * in.N + n) * in.C;
  const T* bias_x = mask.distance_bias_nc + n * mask.distances;
  const T scale = score_scale<T>(in);
  T* query_kc = scratch;
  T* d_out_kc = query_kc + K * at_once;
  T* key_ks = d_out_kc + K * at_once;
  T* value_ks = key_ks + K * band;
  T* hide_s = value_ks + K * band;  // added to scores: 0, or -infinity for masked or missing keys
  T* sum_iv = hide_s + band;        // partial sums of every distance, one per lane
  alignas(64) T delta_c[at_once], lse_here_c[at_once];
  for (Index i = 0; i < count; ++i) store<L>(sum_iv + i * width, splat<L>(T(0)));

  for (Index first = begin; first < end; first += at_once) {
    const Index first_key =
        first + mask.query_offset - (distances.end - 1);  // key at the largest distance from the first query
    transpose_band<T>(query_kc, query_ck, first, at_once, in.C, K);
    transpose_band<T>(d_out_kc, d_out_ck, first, at_once, in.C, K);
    transpose_band<T>(key_ks, key_sk, first_key, band, in.S, K);
    transpose_band<T>(value_ks, value_sk, first_key, band, in.S, K);
    for (Index s = 0; s < band; ++s) {
      const Index key = first_key + s;
      const bool there = key >= 0 && key < in.S && !(mask.mask_bs && mask.mask_bs[b * in.S + key] == 0);
      hide_s[s] = there ? T(0) : T(-infinity);
    }
    sum_delta<T>(delta_c, d_out_ck.from(first), out_ck.from(first), 0, min_of(at_once, in.C - first), K);
    for (Index c = 0; c < at_once; ++c) {
      const bool there = first + c < end;
      lse_here_c[c] = there ? lse_c[first + c] : T(infinity);  // makes the weight of a missing query 0
      if (!there) delta_c[c] = T(0);
    }
    for (Index i = 0; i < count; ++i) {
      const Index behind = count - 1 - i;  // index of the first query's key in the band
      L score[vectors], d_weight[vectors];
      unrolled<vectors>([&](int v) { score[v] = d_weight[v] = splat<L>(T(0)); });
      for (Index k = 0; k < K; ++k) {
        unrolled<vectors>([&](int v) {
          const Index c = k * at_once + v * width, s = k * band + behind + v * width;
          score[v] = fused<L>(load<L>(query_kc + c), load<L>(key_ks + s), score[v]);
          d_weight[v] = fused<L>(load<L>(d_out_kc + c), load<L>(value_ks + s), d_weight[v]);
        });
      }
      L sum = load<L>(sum_iv + i * width);
      unrolled<vectors>([&](int v) {
        const L hide = load<L>(hide_s + behind + v * width) - load<L>(lse_here_c + v * width);
        const L weight = exponential<L>(fused<L>(score[v], scale, bias_x[distances.begin + i]) + hide);
        sum = fused<L>(weight, d_weight[v] - load<L>(delta_c + v * width), sum);
      });
      store<L>(sum_iv + i * width, sum);
    }
  }
  for (Index i = 0; i < count; ++i) d_bias_i[i] = sum_lanes<L>(load<L>(sum_iv + i * width));
}

template <class Device, class T>
void bias_in_lanes(Device& device, const AttentionBiasBackward<T>& a) {
  const auto& in = a.in;
  const Index sections = blocks_of(in.C, section), heads = in.B * in.N;
  typename Device::Scope scratch(device.workspace);
  T* part_bnji = scratch.template take<T>(heads * sections * a.most);  // j = section
  T* per_worker = scratch.template take<T>(device.threads.count() * band_scratch<T>(in.K, a.most));
  if (in.S > 0) {
    parallel_for(device, heads * sections, [&](Index task, Index worker) {
      const Index head = task / sections, first = task % sections * section;
      bias_of_queries<T>(part_bnji + task * a.most, a, head / in.N, head % in.N, first, min_of(first + section, in.C),
                         per_worker + worker * band_scratch<T>(in.K, a.most));
    });
  }
  parallel_for(device, in.N, [&](Index n, Index) {
    const Stretch distances = distances_of(a, n);
    for (Index p = distances.begin; p < distances.end; ++p) {
      T sum = T(0), low = T(0);
      for (Index b = 0; b < in.B && in.S > 0; ++b) {
        for (Index j = 0; j < sections; ++j) {
          add_compensated(sum, low, part_bnji[((b * in.N + n) * sections + j) * a.most + p - distances.begin]);
        }
      }
      a.d_distance_bias_np[n * in.mask.distances + p] = sum + low;  // (attention.12)
    }
  });
}

}  // namespace

template <class Device, class T>
void attention_bias_backward(Device& device, const AttentionBiasBackward<T>& a) {
  if constexpr (is_float<T>) {
    bias_in_lanes(device, a);
  } else if constexpr (is_narrow<T>) {
    in_float(device, [&](auto& wide) { attention_bias_backward<Device, float>(device, widened(wide, a)); });
  } else {
    on_one_thread(device, [&] {
      PlainDevice plain;
      attention_bias_backward(plain, a);
    });
  }
}

ABH_INSTANTIATE(Cpu, attention_bias_backward)

}  // namespace abh
