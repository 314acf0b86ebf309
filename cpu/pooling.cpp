#include "layers/pooling.hpp"

#include "cpu/pooling_global.hpp"
#include "layers/pooling_decay.hpp"

namespace abh {

// Pooling over all positions so far, where what was seen keeps its weight.

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

}  // namespace

template <class Device, class T>
void pooling_forward(Device& device, const PoolingForward<T>& a) {
  if constexpr (has_extras) {
    if (!a.in.shape.causal) return pooling_of_all_forward(device, a);
    if (block_of(a.in.shape) < a.in.shape.C) return pooling_windowed_forward(device, a);
  }
  if (a.in.slope_n) return pooling_decay_forward(device, a);
  pooling_forward_global(device, a, WithoutDecay{});
}

template <class Device, class T>
void pooling_backward(Device& device, const PoolingBackward<T>& a) {
  if constexpr (has_extras) {
    if (!a.in.shape.causal) return pooling_of_all_backward(device, a);
    if (block_of(a.in.shape) < a.in.shape.C) return pooling_windowed_backward(device, a);
  }
  if (a.in.slope_n) return pooling_decay_backward(device, a);
  pooling_backward_global(device, a, WithoutDecay{});
}

ABH_INSTANTIATE(Cpu, pooling_forward, pooling_backward)

}  // namespace abh
