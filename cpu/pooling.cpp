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

template <class Device>
PoolingInputs<float> widened(Widened<Device>& wide, const PoolingInputs<bf16>& in) {
  return {.logit_bnc = in.logit_bnc,
          .x_bch = wide.in(in.x_bch, in.shape.B * in.shape.C, in.shape.H(), in.x_stride),
          .slope_n = in.slope_n,
          .mask_bc = in.mask_bc,
          .shape = in.shape};
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
    in_float(device, [&](auto& wide) {
      const Index BC = a.in.shape.B * a.in.shape.C, H = a.in.shape.H();
      pooling_forward<Device, float>(device, {.out_bch = wide.out(a.out_bch, BC, H),
                                              .max_bnc = a.max_bnc,
                                              .sum_bnc = a.sum_bnc,
                                              .in = widened(wide, a.in),
                                              .first = a.first,
                                              .last = a.last});
    });
  } else {
    pooling_forward_in_lanes(device, a);
  }
}

template <class Device, class T>
void pooling_backward(Device& device, const PoolingBackward<T>& a) {
  if constexpr (is_narrow<T>) {
    in_float(device, [&](auto& wide) {
      const Index BC = a.in.shape.B * a.in.shape.C, H = a.in.shape.H();
      pooling_backward<Device, float>(device, {.d_x_bch = wide.out(a.d_x_bch, BC, H, a.d_x_stride, a.accumulate),
                                               .accumulate = a.accumulate,
                                               .d_logit_bnc = a.d_logit_bnc,
                                               .d_out_bch = wide.in(a.d_out_bch, BC, H),
                                               .d_lse_bnc = a.d_lse_bnc,
                                               .out_bch = wide.in(a.out_bch, BC, H),
                                               .max_bnc = a.max_bnc,
                                               .sum_bnc = a.sum_bnc,
                                               .in = widened(wide, a.in)});
    });
  } else {
    pooling_backward_in_lanes(device, a);
  }
}

ABH_INSTANTIATE(Cpu, pooling_forward, pooling_backward)

}  // namespace abh
