#include "layers/pooling.hpp"

#include "cpu/pooling_global.hpp"
#include "cpu/widened.hpp"
#include "layers/pooling_decay.hpp"

namespace abh {

// Pooling over all positions so far, without decay.

namespace {

struct WithoutDecay {
  template <class A>
  void maxima(A* max_c, A* keep_c, A* add_c, const MaskedLogits<A>& logit, Index, Index C) const {
    running_max(max_c, keep_c, add_c, logit, C, C, PoolingOrder::up);
  }
  template <class A>
  void kept(A* keep_c, const MaskedLogits<A>&, const A* max_c, Index, Index C) const {
    kept_of_maxima(keep_c, max_c, max_c, C);
  }
  template <class A>
  A share_left(const A* max_c, const A* sum_c, Index from, Index to, const MaskedLogits<A>&, Index) const {
    return abh::share_left(max_c, sum_c, from, to);
  }
};

// bf16: B sequences from b, in float.
template <class Device>
PoolingInputs<float> widened(Widened<Device>& wide, const PoolingInputs<bf16>& in, Index b, Index B) {
  const Index C = in.shape.C, H = in.shape.H(), row = b * C;
  PoolingShape shape = in.shape;
  shape.B = B;
  return {.logit_bnc = in.logit_bnc + row * shape.N,
          .x_bch = wide.in(in.x_bch + row * stride_or(in.x_stride, H), B * C, H, in.x_stride),
          .slope_n = in.slope_n,
          .mask_bc = in.mask_bc ? in.mask_bc + row : nullptr,
          .shape = shape};
}

// Calls body(b, B) for B sequences from b on, a few at a time, so that scratch memory does not grow with the batch. A
// group has enough sequences that no kernel divides a sequence into more tasks than in the whole batch: the bits are
// the same.
template <class Device, class Body>
void for_groups(const Device& device, const Shape& s, const Body& body) {
  const Index least = max_of(device.threads.count(), max_of(enough_sequences, blocks_of(2 * enough_sequences, s.N)));
  const Index groups = max_of(s.B / least, 1);
  for (Index i = 0; i < groups; ++i) body(i * s.B / groups, (i + 1) * s.B / groups - i * s.B / groups);
}

template <class Device, class T>
void pooling_forward_in_lanes(Device& device, const PoolingForward<T>& a) {
  if constexpr (has_extras) {
    if (!a.in.shape.causal) return pooling_bidirectional_forward(device, a);
    if (block_of(a.in.shape) < a.in.shape.C) return pooling_sliding_window_forward(device, a);
  }
  if (a.in.slope_n) return pooling_decay_forward(device, a);
  pooling_forward_global(device, a, WithoutDecay{});
}

template <class Device, class T>
void pooling_backward_in_lanes(Device& device, const PoolingBackward<T>& a) {
  if constexpr (has_extras) {
    if (!a.in.shape.causal) return pooling_bidirectional_backward(device, a);
    if (block_of(a.in.shape) < a.in.shape.C) return pooling_sliding_window_backward(device, a);
  }
  if (a.in.slope_n) return pooling_decay_backward(device, a);
  pooling_backward_global(device, a, WithoutDecay{});
}

}  // namespace

template <class Device, class T>
void pooling_forward(Device& device, const PoolingForward<T>& a) {
  if constexpr (is_narrow<T>) {
    const Index C = a.in.shape.C, N = a.in.shape.N, H = a.in.shape.H();
    for_groups(device, a.in.shape, [&](Index b, Index B) {
      in_float(device, [&](auto& wide) {
        const Index row = b * C, rows = B * C;
        pooling_forward<Device, float>(device, {.out_bch = wide.out(a.out_bch + row * H, rows, H),
                                                .max_bnc = a.max_bnc + row * N,
                                                .sum_bnc = a.sum_bnc + row * N,
                                                .in = widened(wide, a.in, b, B),
                                                .first = a.first,
                                                .last = a.last});
      });
    });
  } else {
    pooling_forward_in_lanes(device, a);
  }
}

template <class Device, class T>
void pooling_backward(Device& device, const PoolingBackward<T>& a) {
  if constexpr (is_narrow<T>) {
    const Index C = a.in.shape.C, N = a.in.shape.N, H = a.in.shape.H();
    for_groups(device, a.in.shape, [&](Index b, Index B) {
      in_float(device, [&](auto& wide) {
        const Index row = b * C, rows = B * C;
        bf16* d_x_bch = a.d_x_bch + row * stride_or(a.d_x_stride, H);
        pooling_backward<Device, float>(device, {.d_x_bch = wide.out(d_x_bch, rows, H, a.d_x_stride, a.accumulate),
                                                 .accumulate = a.accumulate,
                                                 .d_logit_bnc = a.d_logit_bnc + row * N,
                                                 .d_out_bch = wide.in(a.d_out_bch + row * H, rows, H),
                                                 .d_lse_bnc = a.d_lse_bnc ? a.d_lse_bnc + row * N : nullptr,
                                                 .out_bch = wide.in(a.out_bch + row * H, rows, H),
                                                 .max_bnc = a.max_bnc + row * N,
                                                 .sum_bnc = a.sum_bnc + row * N,
                                                 .in = widened(wide, a.in, b, B)});
      });
    });
  } else {
    pooling_backward_in_lanes(device, a);
  }
}

ABH_INSTANTIATE(Cpu, pooling_forward, pooling_backward)

}  // namespace abh
