#include "layers/pooling_decay.hpp"

#include "plain/pooling_backward.hpp"

namespace abh {

namespace {

// Low parts (rounding errors): of the logit and the values of one position that represents many positions, and of a
// state that is written.
template <class T>
void add_low_part(const State<T>& state, const PoolingLowPart<const T>& low, Index n, const PoolingShape& s) {
  using S = Extended<T>;
  state.set_sum(state.sum() * (S(1) + S(low.weight_n[n])));  // e^rest, with a rest near 0
  for (Index j = 0; j < state.J; ++j) {
    state.set_out(j, state.out(j) + S(array(low.payload_h, s.K)(j / s.K * s.N + n, j % s.K)));
  }
}
template <class T>
void write_low_part(const PoolingLowPart<T>& low, const State<T>& state, Index n, const PoolingShape& s) {
  using S = Extended<T>;
  low.weight_n[n] = T(state.sum() - S(T(state.sum())));
  for (Index j = 0; j < state.J; ++j) {
    array(low.payload_h, s.K)(j / s.K * s.N + n, j % s.K) = T(state.out(j) - S(T(state.out(j))));
  }
}

}  // namespace

// The recurrence, one state after the other.
template <class Device, class T>
void pooling_decay_forward(Device& device, const PoolingForward<T>& a) {
  using A = Accum<T>;
  const Index B = a.in.shape.B, C = a.in.shape.C, N = a.in.shape.N, K = a.in.shape.K, payloads = a.in.shape.payloads;
  const Index J = payloads * K;
  const auto x = heads(a.in.x_bch, a.in.x_stride, C, payloads * N, K);
  const auto out = heads(a.out_bch, 0, C, payloads * N, K);
  const auto max = array(a.max_bnc, N, C), sum = array(a.sum_bnc, N, C);
  typename Device::Scope scratch(device.workspace);
  A* numbers = scratch.template take<A>(State<A>::size(J) + 1);
  const State<A> seen{numbers + 1, numbers[0], J};
  for (Index b = 0; b < B; ++b) {
    for (Index n = 0; n < N; ++n) {
      const A slope = slope_of(a.in.slope_n, n);
      start(seen);
      for (Index c = 0; c < C; ++c) {
        push(seen, seen, logit_of(a.in, b, n, c), slope, [&](Index j) { return x(b, c, j / K * N + n, j % K); });
        if (c == 0 && a.first.weight_n) add_low_part(seen, a.first, n, a.in.shape);
        max(b, n, c) = A(seen.max(slope));
        sum(b, n, c) = A(seen.sum());
        for (Index j = 0; j < J; ++j) out(b, c, j / K * N + n, j % K) = A(seen.out(j));
      }
      if (C > 0 && a.last.weight_n) write_low_part(a.last, seen, n, a.in.shape);
    }
  }
}

template <class Device, class T>
void pooling_decay_backward(Device& device, const PoolingBackward<T>& a) {
  using S = Extended<T>;
  const auto max = array(a.max_bnc, a.in.shape.N, a.in.shape.C);
  backward_of_average(device, a, [&](Index b, Index n, Index c) {
    const bool stays = logit_of(a.in, b, n, c) < max(b, n, c);
    return stays ? S(max(b, n, c)) : S(max(b, n, c - 1)) - S(a.in.slope_n[n]);  // (pooling_decay.4)
  });
}

ABH_INSTANTIATE(PlainDevice, pooling_decay_forward, pooling_decay_backward)

}  // namespace abh
