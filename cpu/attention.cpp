#include "layers/attention.hpp"

#include "cpu/attention_backward_tiles.hpp"
#include "cpu/attention_forward_tiles.hpp"
#include "cpu/attention_widened.hpp"
#if ABH_LANE_BYTES > 4
#include "cpu/units/attention_units.hpp"
#include "cpu/units/gemm_units.hpp"
#endif
#include "plain/plain.hpp"

namespace abh {

// Tiles support float only; other types use the plain loops of plain/attention.cpp.
ABH_INSTANTIATED_ELSEWHERE(PlainDevice, attention_forward, attention_backward)

namespace {

template <bool biased, class Device, class T>
void forward_in_tiles(Device& device, const AttentionForward<T>& a) {
  const auto& in = a.in;
  const Index block = block_rows(in.B * in.N, in.C, in.K);
  const Index blocks = blocks_of(in.C, block);
  typename Device::Scope scratch(device.workspace);
  T* per_worker = scratch.template take<T>(device.threads.count() * forward_scratch<T>(in.K, in.S, block));
  const BiasTable<T> bias(scratch, in);
  if constexpr (biased) parallel_for(device, in.N, [&](Index n, Index) { bias.fill(in, n); });
  parallel_for(device, in.B * in.N * blocks, [&](Index task, Index worker) {
    const Index head = task / blocks;
    // Order first, last, second, last but one, ...: in a causal mask later blocks cost more, so workers get equal work.
    const Index i = task % blocks;
    const Index t = i % 2 == 0 ? i / 2 : blocks - 1 - i / 2;
    ForwardBlock<biased, T>(a, head / in.N, head % in.N, t * block, block, bias.of_head(head % in.N),
                            per_worker + worker * forward_scratch<T>(in.K, in.S, block))
        .run();
  });
}

// bf16: by the unit of the device, or in float, a few sequences at a time. in_lanes: attention of floats.
template <class Device, class Arguments, class InLanes>
void narrow_attention(Device& device, const Arguments& a, const InLanes& in_lanes) {
#if ABH_LANE_BYTES > 4
  if (device.unit == Isa::amx && !isa_available(Isa::amx)) {
    return attention_in_unit<AmxTiles<EmulatedTiles>>(device, a);  // for tests
  }
  if constexpr (requires { attention_in_tiles(device, a); }) {
    if (device.unit == Isa::amx) return attention_in_tiles(device, a);
    if (device.unit == Isa::avx512_bf16) return attention_in_pairs(device, a);
  }
#endif
  for_sequences(a.in,
                [&](Stretch b) { in_float(device, [&](auto& wide) { in_lanes(widened(wide, sequences(a, b))); }); });
}

}  // namespace

template <class Device, class T>
void attention_forward(Device& device, const AttentionForward<T>& a) {
  if constexpr (is_float<T>) {
    a.in.mask.distance_bias_nc ? forward_in_tiles<true>(device, a) : forward_in_tiles<false>(device, a);
  } else if constexpr (is_narrow<T>) {
    narrow_attention(device, a, [&](const auto& wide) { attention_forward<Device, float>(device, wide); });
  } else {
    on_one_thread(device, [&] {
      PlainDevice plain;
      attention_forward(plain, a);
    });
  }
}

template <class Device, class T>
void attention_backward(Device& device, const AttentionBackward<T>& a) {
  if constexpr (is_float<T>) {
    a.in.mask.distance_bias_nc ? backward_in_tiles<true>(device, a) : backward_in_tiles<false>(device, a);
  } else if constexpr (is_narrow<T>) {
    narrow_attention(device, a, [&](const auto& wide) { attention_backward<Device, float>(device, wide); });
  } else {
    on_one_thread(device, [&] {
      PlainDevice plain;
      attention_backward(plain, a);
    });
  }
}

template <class Device, class T>
void attention_step(Device& device, const AttentionStep<T>& a) {
  using A = Accum<T>;
  const Index H = a.N * a.K;
  const AttentionMask<Accum<T>>& mask = a.mask;
  const A scale = score_scale<A>(a);
  typename Device::Scope scratch(device.workspace);
  A* score_nc = scratch.template take<A>(a.N * a.length);
  parallel_for(device, a.N, [&](Index n, Index) {
    // Rows within the window, which ends with the query's own row.
    const Index reach = mask.of_head(n).window;
    const Index rows = reach > 0 ? min_of(reach, a.length) : a.length, first = a.length - rows;
    A* score_c = score_nc + n * a.length;
    const auto row = [&](const T* rows_ch, Index c) { return rows_ch + a.row(first + c) * H + n * a.K; };
    A max = A(-infinity);
    for (Index c = 0; c < rows; ++c) {
      RowSum<T> score;  // one query: SIMD lanes run along its channels, and a score is a sum across lanes
      const T* key_k = row(a.key_ch, c);
      for_terms<T>(a.K,
                   [&]<class L>(Index k) { score.add_product(load<L>(a.query_h + n * a.K + k), load<L>(key_k + k)); });
      score_c[c] = score.total() * scale;  // (attention.1)
      if (mask.distance_bias_nc) score_c[c] += mask.distance_bias_nc[n * mask.distances + rows - 1 - c];
      max = larger(max, score_c[c]);
    }
    // Adds tile by tile with compensated sums, because a plain sum of a million terms would lose precision.
    A sum = A(0), sum_low = A(0);
    for (Index first_row = 0; first_row < rows; first_row += tile) {
      RowSum<T> of_tile;
      for_lanes<T>(min_of(tile, rows - first_row), [&]<class L>(Index c) {
        const L power = exponential<L>(load<L>(score_c + first_row + c) - max);
        of_tile += power;
        store<L>(score_c + first_row + c, power);
      });
      add_compensated(sum, sum_low, of_tile.total());  // (attention.2)
    }
    const A inverse = rows == 0 ? A(0) : A(1) / (sum + sum_low);
    for_lanes<T>(a.K, [&]<class L>(Index k) {  // (attention.3)
      L out = splat<L>(A(0)), low = splat<L>(A(0));
      for (Index first_row = 0; first_row < rows; first_row += tile) {
        L of_tile = splat<L>(A(0));
        for (Index c = first_row; c < min_of(first_row + tile, rows); ++c) {
          of_tile = fused<L>(score_c[c], load<L>(row(a.value_ch, c) + k), of_tile);
        }
        add_compensated(out, low, of_tile);
      }
      store<L>(a.out_h + n * a.K + k, (out + low) * inverse);
    });
  });
}

ABH_INSTANTIATE(Cpu, attention_forward, attention_backward, attention_step)

}  // namespace abh
