#include "plain/pooling_state.hpp"

namespace abh {

namespace {

// Two stretches of positions become one. The average goes from the prefix towards the suffix by the suffix's share,
// which is 0 where there is no suffix: then nothing changes, to the last bit. The suffix ended `distance` positions
// before the prefix does, and its state is as of its end, with an age of 0.
template <class T>
void merge(const State<T>& both, const State<T>& suffix, const State<T>& prefix, T slope, Index distance) {
  using S = Longer<T>;
  const S max_suffix = S(suffix.top()) - S(slope) * S(distance), max_prefix = prefix.max(slope);  // (pooling.23)
  const S max = max_suffix > max_prefix ? max_suffix : max_prefix;
  const S older = suffix.sum() * power(max_suffix, max);
  const S sum = older + prefix.sum() * power(max_prefix, max);  // (pooling.6)
  const S gamma = sum == S(0) ? S(0) : older / sum;             // (pooling.7)
  for (Index j = 0; j < both.J; ++j) {
    both.set_out(j, prefix.out(j) + gamma * (suffix.out(j) - prefix.out(j)));  // (pooling.8)
  }
  both.top() = T(max);
  both.age = T(0);
  both.set_sum(sum);
}

}  // namespace

// A global window is one block, whose prefixes are the result. The reference takes the way of a window there, too: its
// suffixes are computed and not used.
template <class Device, class T>
void pooling_windowed_forward(Device& device, const PoolingForward<T>& a) {
  const Index B = a.in.shape.B, C = a.in.shape.C, N = a.in.shape.N, K = a.in.shape.K, payloads = a.in.shape.payloads;
  const Index w = window_of(a.in.shape), J = payloads * K, width = State<T>::size(J);
  const auto x = heads(a.in.x_bch, a.in.x_stride, C, payloads * N, K);
  const auto out = heads(a.out_bch, 0, C, payloads * N, K);
  const auto max = array(a.max_bnc, N, C), sum = array(a.sum_bnc, N, C);
  typename Device::Scope scratch(device.workspace);
  T* prefixes = scratch.template take<T>(C * width);
  T* suffixes = scratch.template take<T>(C * width);
  T* ages = scratch.template take<T>(2 * C + 2);
  const auto prefix = [&](Index c) { return State<T>{&array(prefixes, width)(c, 0), ages[c], J}; };
  const auto suffix = [&](Index c) { return State<T>{&array(suffixes, width)(c, 0), ages[C + c], J}; };
  const State<T> none{scratch.template take<T>(width), ages[2 * C], J};
  const State<T> merged{scratch.template take<T>(width), ages[2 * C + 1], J};
  start(none);

  for (Index b = 0; b < B; ++b) {
    for (Index n = 0; n < N; ++n) {
      const T slope = slope_of(a.in.slope_n, n);
      // Number j of what the logits of head n weigh, at position c.
      const auto payload = [&, b = b, n = n](Index c) {
        return [&, b, n, c](Index j) { return x(b, c, j / K * N + n, j % K); };
      };
      for (Index c = 0; c < C; ++c) {
        const bool starts = c % w == 0;
        push(prefix(c), starts ? none : prefix(c - 1), logit_of(a.in, b, n, c), slope, payload(c));
        if (c == 0 && a.first.weight_n) add_rest(prefix(c), a.first, n, a.in.shape);
      }
      // A suffix is a state at the end of its block: what joins it is older, and nothing in it grows old.
      for (Index c = C - 1; c >= 0; --c) {
        const Index block_end = (c / w + 1) * w, end = (block_end < C ? block_end : C) - 1;
        const T logit = logit_of(a.in, b, n, c) - slope * T(end - c);  // (pooling.23)
        push(suffix(c), c == end ? none : suffix(c + 1), logit, T(0), payload(c));
      }
      for (Index c = 0; c < C; ++c) {
        const Index first = c - w + 1;
        // Then the prefix is the window. The suffix from `first` would be the same block again, and count it twice.
        const bool in_one_block = first < 0 || first % w == 0;
        merge(merged, in_one_block ? none : suffix(first), prefix(c), slope, c % w + 1);
        max(b, n, c) = merged.top();
        sum(b, n, c) = T(merged.sum());
        for (Index j = 0; j < J; ++j) out(b, c, j / K * N + n, j % K) = T(merged.out(j));
        if (c == C - 1 && a.last.weight_n) write_rest(a.last, merged, n, a.in.shape);
      }
    }
  }
}

template <class Device, class T>
void pooling_windowed_backward(Device& device, const PoolingBackward<T>& a) {
  const auto [B, C, N, K, w, causal, payloads] = a.in.shape;
  const auto x = heads(a.in.x_bch, a.in.x_stride, C, payloads * N, K), out = heads(a.out_bch, 0, C, payloads * N, K);
  const auto d_out = heads(a.d_out_bch, 0, C, payloads * N, K);
  const auto d_x = heads(a.d_x_bch, a.d_x_stride, C, payloads * N, K);
  const auto d_logit = array(a.d_logit_bnc, N, C);
  const auto max = array(a.max_bnc, N, C), sum = array(a.sum_bnc, N, C);
  using S = Longer<T>;
  typename Device::Scope scratch(device.workspace);
  const auto pull = array(scratch.template take<S>(payloads * N * K), K);
  const auto pulled = array(scratch.template take<S>(payloads * N * K), K);

  for (Index b = 0; b < B; ++b) {
    for (Index n = 0; n < N; ++n) {
      const T slope = slope_of(a.in.slope_n, n);
      for (Index c = 0; c < C; ++c) {
        // The windows that c lies in: down those that end in its block, up those that end in the next, [first, end).
        const Index seen_until = c + w < C ? c + w : C;
        const Index block_end = (c / w + 1) * w < seen_until ? (c / w + 1) * w : seen_until;
        S from_out = 0;  // d_out . out in the place of d_out
        for (Index m = n; m < payloads * N; m += N) {
          for (Index k = 0; k < K; ++k) pulled(m, k) = 0;
        }
        for (const bool down : {true, false}) {
          const Index first = down ? c : block_end, end = down ? block_end : seen_until;
          const auto against = [&, b = b, n = n](Index s) { return -max(b, n, s) - slope * T(s - c); };  // (pooling.24)
          T level = T(-infinity);
          S pull_out = 0;
          for (Index m = n; m < payloads * N; m += N) {
            for (Index k = 0; k < K; ++k) pull(m, k) = 0;
          }
          for (Index s = first; s < end; ++s) {
            if (sum(b, n, s) != T(0) && against(s) > level) level = against(s);  // (pooling.15)
          }
          for (Index s = first; s < end; ++s) {
            if (sum(b, n, s) == T(0)) continue;  // a window that sees nothing has no say
            const S weight = S(exp(against(s) - level)) / S(sum(b, n, s));
            for (Index m = n; m < payloads * N; m += N) {
              for (Index k = 0; k < K; ++k) {
                pull(m, k) += weight * S(d_out(b, s, m, k));                     // (pooling.16)
                pull_out += weight * S(d_out(b, s, m, k)) * S(out(b, s, m, k));  // (pooling.16)
              }
            }
            if (a.d_lse_bnc) pull_out -= weight * S(array(a.d_lse_bnc, N, C)(b, n, s));  // (pooling.29)
          }
          // At most 1: logit_c is among the logits of each of these windows, so -level, the least of their maxima, is
          // no less. 0 for a masked position, and where no window is on this side.
          const S weight = S(exp(logit_of(a.in, b, n, c) + level));
          for (Index m = n; m < payloads * N; m += N) {
            for (Index k = 0; k < K; ++k) pulled(m, k) += weight * pull(m, k);  // (pooling.17)
          }
          from_out += weight * pull_out;
        }
        S from_x = 0;
        for (Index m = n; m < payloads * N; m += N) {
          for (Index k = 0; k < K; ++k) {
            from_x += S(x(b, c, m, k)) * pulled(m, k);
            d_x(b, c, m, k) = T(pulled(m, k)) + (a.accumulate ? d_x(b, c, m, k) : T(0));
          }
        }
        d_logit(b, n, c) = T(from_x - from_out);  // (pooling.18)
      }
    }
  }
}

#define INSTANTIATE(T)                                                                                  \
  template decltype(pooling_windowed_forward<PlainDevice, T>) pooling_windowed_forward<PlainDevice, T>; \
  template decltype(pooling_windowed_backward<PlainDevice, T>) pooling_windowed_backward<PlainDevice, T>;
ABH_FOR_EACH_SCALAR(INSTANTIATE)

}  // namespace abh
