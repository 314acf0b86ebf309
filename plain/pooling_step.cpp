#include "plain/pooling_state.hpp"

namespace abh {

namespace {

// Layout of the state. Without a window: one state per head. With a window: the index of the next ring position, that
// state, and a ring buffer of w single-position states. `place` 0 is the former, 1 + r is ring position r. The age is
// stored last; a state without decay has none and uses that of the caller.
template <class T>
State<T> state_of(T* state, Index place, Index n, const PoolingShape& s, bool decays, T& age_of_step) {
  T* states = s.window > 0 ? state + 1 : state;
  const Index J = s.payloads * s.K, width = State<T>::size(J);
  T* numbers = &array(states, s.N, width + (decays ? 1 : 0))(place, n, 0);
  return {numbers, decays ? numbers[width] : age_of_step, J};
}

}  // namespace

template <class Device, class T>
void pooling_start(Device&, Accum<T>* state, const PoolingShape& s, bool decays) {
  using A = Accum<T>;
  A age_of_step = A(0);
  if (s.window > 0) state[0] = A(0);
  for (Index place = 0; place < s.window + 1; ++place) {
    for (Index n = 0; n < s.N; ++n) start(state_of<A>(state, place, n, s, decays, age_of_step));
  }
}

template <class Device, class T>
void pooling_step(Device&, const PoolingStep<T>& a) {
  using A = Accum<T>;
  const PoolingShape& s = a.shape;
  const Index w = s.window, newest = w > 0 ? static_cast<Index>(static_cast<double>(a.state[0])) : 0;
  const Index N = s.N, K = s.K, J = s.payloads * K;
  const auto x = array(a.x_h, K);
  const auto out = array(a.out_h, K);
  A age_of_step = A(0);
  for (Index n = 0; n < N; ++n) {
    const A slope = slope_of(a.slope_n, n);
    const auto place = [&, n = n](Index i) { return state_of<A>(a.state, i, n, s, a.slope_n != nullptr, age_of_step); };
    const auto payload = [&, n = n](Index j) { return x(j / K * N + n, j % K); };
    const State<A> seen = place(0);
    if (w > 0) {
      const State<A> here = place(1 + newest);
      here.top() = a.logit_n[n];
      for (Index j = 0; j < J; ++j) here.set_out(j, payload(j));
      start(seen);
      // With a window, every step pools all w positions again from the oldest on, w times the work: the reference of
      // the other devices. Empty ring positions have a logit of -infinity.
      for (Index r = 1; r <= w; ++r) {
        const State<A> position = place(1 + (newest + r) % w);
        push(seen, seen, position.top(), slope, [&](Index j) { return position.out(j); });
      }
    } else {
      push(seen, seen, a.logit_n[n], slope, payload);
    }
    for (Index j = 0; j < J; ++j) out(j / K * N + n, j % K) = A(seen.out(j));
    a.max_n[n] = A(seen.max(slope));
    a.sum_n[n] = A(seen.sum());
  }
  if (w > 0) a.state[0] = A((newest + 1) % w);
}

ABH_INSTANTIATE(PlainDevice, pooling_start, pooling_step)

}  // namespace abh
