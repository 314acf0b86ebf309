#include "extras/windows/pooling_sliding_window.hpp"
#include "plain/pooling_state.hpp"

namespace abh {

namespace {

// Merges two stretches of positions. The average moves from the prefix towards the suffix by the share of the suffix,
// which is 0 without a suffix: then nothing changes bitwise. The suffix ended `distance` positions before the prefix,
// and its state is that at its end, with age 0.
template <class T>
void merge(const State<T>& both, const State<T>& suffix, const State<T>& prefix, T slope, Index distance) {
  using S = Extended<T>;
  const S max_suffix = S(suffix.top()) - S(slope) * S(distance);  // (pooling_sliding_window.8)
  const S max_prefix = prefix.max(slope);
  const S max = max_suffix > max_prefix ? max_suffix : max_prefix;
  const S older = suffix.sum() * exp_shifted(max_suffix, max);
  const S sum = older + prefix.sum() * exp_shifted(max_prefix, max);  // (pooling_sliding_window.1)
  const S gamma = sum == S(0) ? S(0) : older / sum;                   // (pooling_sliding_window.2)
  for (Index j = 0; j < both.J; ++j) {
    both.set_out(j, prefix.out(j) + gamma * (suffix.out(j) - prefix.out(j)));  // (pooling_sliding_window.3)
  }
  both.top() = T(max);
  both.age = T(0);
  both.set_sum(sum);
}

}  // namespace

template <class Device, class T>
void pooling_sliding_window_forward(Device& device, const PoolingForward<T>& a) {
  using A = Accum<T>;
  const Index B = a.in.shape.B, C = a.in.shape.C, N = a.in.shape.N, K = a.in.shape.K, payloads = a.in.shape.payloads;
  const Index w = window_of(a.in.shape), J = payloads * K, width = State<A>::size(J);
  const auto x = heads(a.in.x_bch, a.in.x_stride, C, payloads * N, K);
  const auto out = heads(a.out_bch, 0, C, payloads * N, K);
  const auto max = array(a.max_bnc, N, C), sum = array(a.sum_bnc, N, C);
  typename Device::Scope scratch(device.workspace);
  A* prefixes = scratch.template take<A>(C * width);
  A* suffixes = scratch.template take<A>(C * width);
  A* ages = scratch.template take<A>(2 * C + 2);
  const auto prefix = [&](Index c) { return State<A>{&array(prefixes, width)(c, 0), ages[c], J}; };
  const auto suffix = [&](Index c) { return State<A>{&array(suffixes, width)(c, 0), ages[C + c], J}; };
  const State<A> none{scratch.template take<A>(width), ages[2 * C], J};
  const State<A> merged{scratch.template take<A>(width), ages[2 * C + 1], J};
  start(none);

  for (Index b = 0; b < B; ++b) {
    for (Index n = 0; n < N; ++n) {
      const A slope = slope_of(a.in.slope_n, n);
      // Value j of head n at position c.
      const auto payload = [&, b = b, n = n](Index c) {
        return [&, b, n, c](Index j) { return x(b, c, j / K * N + n, j % K); };
      };
      for (Index c = 0; c < C; ++c) {
        const bool starts = c % w == 0;
        push(prefix(c), starts ? none : prefix(c - 1), logit_of(a.in, b, n, c), slope, payload(c));
      }
      // A suffix is a state at the end of its block: added positions are older, and the state does not age.
      for (Index c = C - 1; c >= 0; --c) {
        const Index block_end = (c / w + 1) * w, end = (block_end < C ? block_end : C) - 1;
        const A logit = logit_of(a.in, b, n, c) - slope * A(end - c);  // (pooling_sliding_window.8)
        push(suffix(c), c == end ? none : suffix(c + 1), logit, A(0), payload(c));
      }
      for (Index c = 0; c < C; ++c) {
        const Index first = c - w + 1;
        // Then the prefix is the window. The suffix from `first` would be the same block again.
        const bool in_one_block = first < 0 || first % w == 0;
        merge(merged, in_one_block ? none : suffix(first), prefix(c), slope, c % w + 1);
        max(b, n, c) = merged.top();
        sum(b, n, c) = A(merged.sum());
        for (Index j = 0; j < J; ++j) out(b, c, j / K * N + n, j % K) = A(merged.out(j));
      }
    }
  }
}

ABH_INSTANTIATE(PlainDevice, pooling_sliding_window_forward)

}  // namespace abh
