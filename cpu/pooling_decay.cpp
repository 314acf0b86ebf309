#include "layers/pooling_decay.hpp"

#include "cpu/pooling_decay.hpp"
#include "cpu/pooling_global.hpp"

namespace abh {

// Pooling over all positions so far, with decay: logits decrease by the slope at every position.

namespace {

template <class A>
struct Decay {
  const A* slope_n;

  void maxima(A* max_c, A* keep_c, A* add_c, const MaskedLogits<A>& logit, Index n, Index C) const {
    running_max(max_c, keep_c, add_c, logit, slope_n[n], C, C, PoolingOrder::up);
  }

  // keep_c initially holds the decayed maximum.
  void kept(A* keep_c, const MaskedLogits<A>& logit, const A* max_c, Index n, Index C) const {
    const A slope = slope_n[n];
    if (slope == A(0)) return kept_of_maxima(keep_c, max_c, max_c, C);
    A* aged_c = keep_c;
    for (Index c = 1; c < C; ++c) {
      aged_c[c - 1] = logit[c] < max_c[c] ? max_c[c] : max_c[c - 1] - slope;  // (pooling_decay.4)
    }
    kept_of_maxima(keep_c, aged_c, max_c, C);
  }

  // Until a new position becomes the maximum, the factor of the sums is exactly 1.
  A share_left(const A* max_c, const A* sum_c, Index from, Index to, const MaskedLogits<A>& logit, Index n) const {
    if (slope_n[n] == A(0)) return abh::share_left(max_c, sum_c, from, to);
    if (sum_c[from] == A(0)) return A(0);
    bool stays = true;
    for (Index c = from + 1; c <= to && stays; ++c) stays = logit[c] < max_c[c];
    if (stays) return sum_c[from] / sum_c[to];
    return sum_c[from] * exponential<A>(fused<A>(-slope_n[n], A(to - from), max_c[from]) - max_c[to]) / sum_c[to];
  }
};

}  // namespace

template <class Device, class T>
void pooling_decay_forward(Device& device, const PoolingForward<T>& a) {
  pooling_forward_global(device, a, Decay<Accum<T>>{a.in.slope_n});
}

template <class Device, class T>
void pooling_decay_backward(Device& device, const PoolingBackward<T>& a) {
  pooling_backward_global(device, a, Decay<Accum<T>>{a.in.slope_n});
}

ABH_INSTANTIATE_WIDE(Cpu, pooling_decay_forward, pooling_decay_backward)

}  // namespace abh
