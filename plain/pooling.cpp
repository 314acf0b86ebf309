#include "layers/pooling.hpp"

#include "plain/view.hpp"

namespace abh {

namespace {

// How many positions a window holds.
Index window_of(const PoolingShape& s) { return s.window > 0 && s.window < s.C ? s.window : s.C; }

// The logit of a position, -infinity where the mask leaves it out.
template <class T, class Arguments>
T logit_of(const Arguments& a, Index b, Index n, Index c) {
  const bool left_out = a.mask_bc && array(a.mask_bc, a.shape.C)(b, c) == 0;
  return left_out ? T(-infinity) : array(a.logit_bnc, a.shape.N, a.shape.C)(b, n, c);
}

// e^(logit - most), at most 1: most is the largest logit of those concerned. Nothing weighs 0 beside nothing, too,
// where the difference would be -infinity less -infinity.
template <class T>
T power(T logit, T most) {
  return logit == T(-infinity) ? T(0) : exp(logit - most);
}

// ---- The definition ----

// The weights of the positions s that c sees, softmax of their logits; 0 for all when c sees nothing. s runs from the
// first position of the window, which is returned, to c.
template <class T, class Arguments>
Index weights_of(T* weight_s, const Arguments& a, Index b, Index n, Index c) {
  const Index w = window_of(a.shape), first = c < w ? 0 : c - w + 1;
  T most = T(-infinity), total = T(0);
  for (Index s = first; s <= c; ++s) {
    const T logit = logit_of<T>(a, b, n, s);
    if (logit > most) most = logit;
  }
  // Relative to the largest: the factor e^-most cancels in the quotient, and nothing overflows.
  for (Index s = first; s <= c; ++s) total += power(logit_of<T>(a, b, n, s), most);
  for (Index s = first; s <= c; ++s) {
    weight_s[s] = total == T(0) ? T(0) : power(logit_of<T>(a, b, n, s), most) / total;
  }
  return first;
}

}  // namespace

template <class Device, class T>
void pooling_definition_forward(Device& device, const PoolingForward<T>& a) {
  const auto [B, C, N, K, window] = a.shape;
  const auto x = heads(a.x_bch, a.x_stride, C, N, K);
  const auto out = heads(a.out_bch, 0, C, N, K);
  typename Device::Scope scratch(device.workspace);
  T* weight_s = scratch.template take<T>(C);
  for (Index b = 0; b < B; ++b) {
    for (Index n = 0; n < N; ++n) {
      for (Index c = 0; c < C; ++c) {
        const Index first = weights_of(weight_s, a, b, n, c);
        for (Index k = 0; k < K; ++k) {
          out(b, c, n, k) = T(0);
          for (Index s = first; s <= c; ++s) out(b, c, n, k) += weight_s[s] * x(b, s, n, k);  // (pooling.1)
        }
      }
    }
  }
}

// The gradients of (pooling.1) as they stand: out is linear in x_s, with the factor weight_s, and by the quotient rule
// its derivative with respect to logit_s is weight_s (x_s - out).
template <class Device, class T>
void pooling_definition_backward(Device& device, const PoolingBackward<T>& a) {
  const auto [B, C, N, K, window] = a.shape;
  const auto x = heads(a.x_bch, a.x_stride, C, N, K), d_out = heads(a.d_out_bch, 0, C, N, K);
  const auto d_x = heads(a.d_x_bch, a.d_x_stride, C, N, K);
  const auto d_logit = array(a.d_logit_bnc, N, C);
  typename Device::Scope scratch(device.workspace);
  T* weight_s = scratch.template take<T>(C);
  for (Index b = 0; b < B; ++b) {
    for (Index n = 0; n < N; ++n) {
      for (Index c = 0; c < C; ++c) {
        d_logit(b, n, c) = T(0);
        for (Index k = 0; k < K && !a.accumulate; ++k) d_x(b, c, n, k) = T(0);
      }
      for (Index c = 0; c < C; ++c) {
        const Index first = weights_of(weight_s, a, b, n, c);
        for (Index k = 0; k < K; ++k) {
          T out = T(0);
          for (Index s = first; s <= c; ++s) out += weight_s[s] * x(b, s, n, k);
          for (Index s = first; s <= c; ++s) {
            d_x(b, s, n, k) += weight_s[s] * d_out(b, c, n, k);
            d_logit(b, n, s) += weight_s[s] * d_out(b, c, n, k) * (x(b, s, n, k) - out);
          }
        }
      }
    }
  }
}

// ---- The recurrence ----

namespace {

// What is known of some positions of a head: K + 2 numbers. sum is relative to max: sum e^max is the sum of e^logit.
template <class T>
struct State {
  T* numbers;
  T& max() const { return numbers[0]; }
  T& sum() const { return numbers[1]; }
  T& out(Index k) const { return numbers[2 + k]; }
};

// Of no position.
template <class T>
void start(const State<T>& state, Index K) {
  state.max() = T(-infinity);
  state.sum() = T(0);
  for (Index k = 0; k < K; ++k) state.out(k) = T(0);
}

// One position more: now = before and (logit, x_k). Both may be one state. After no position sum is 0 and alpha
// 1, whatever out held; a masked position has a power of 0, so alpha is 0 and nothing moves.
template <class T>
void push(const State<T>& now, const State<T>& before, T logit, const T* x_k, Index K) {
  const T max = logit > before.max() ? logit : before.max();                  // (pooling.2)
  const T sum = before.sum() * power(before.max(), max) + power(logit, max);  // (pooling.3)
  const T alpha = sum == T(0) ? T(0) : power(logit, max) / sum;               // (pooling.4)
  for (Index k = 0; k < K; ++k) {
    now.out(k) = before.out(k) + alpha * (x_k[k] - before.out(k));  // (pooling.5)
  }
  now.max() = max;
  now.sum() = sum;
}

// Two stretches of positions become one. The average goes from the prefix towards the suffix by the suffix's share,
// which is 0 where there is no suffix: then nothing changes, to the last bit.
template <class T>
void merge(const State<T>& both, const State<T>& suffix, const State<T>& prefix, Index K) {
  const T max = suffix.max() > prefix.max() ? suffix.max() : prefix.max();
  const T older = suffix.sum() * power(suffix.max(), max);
  const T sum = older + prefix.sum() * power(prefix.max(), max);  // (pooling.6)
  const T gamma = sum == T(0) ? T(0) : older / sum;               // (pooling.7)
  for (Index k = 0; k < K; ++k) {
    both.out(k) = prefix.out(k) + gamma * (suffix.out(k) - prefix.out(k));  // (pooling.8)
  }
  both.max() = max;
  both.sum() = sum;
}

}  // namespace

// A global window is one block, whose prefixes are the result. The reference takes the way of a window there, too: its
// suffixes are computed and not used.
template <class Device, class T>
void pooling_forward(Device& device, const PoolingForward<T>& a) {
  const auto [B, C, N, K, window] = a.shape;
  const Index w = window_of(a.shape), width = K + 2;
  const auto x = heads(a.x_bch, a.x_stride, C, N, K);
  const auto out = heads(a.out_bch, 0, C, N, K);
  const auto max = array(a.max_bnc, N, C), sum = array(a.sum_bnc, N, C);
  typename Device::Scope scratch(device.workspace);
  T* prefixes = scratch.template take<T>(C * width);
  T* suffixes = scratch.template take<T>(C * width);
  const auto prefix = [&](Index c) { return State<T>{&array(prefixes, width)(c, 0)}; };
  const auto suffix = [&](Index c) { return State<T>{&array(suffixes, width)(c, 0)}; };
  const State<T> none{scratch.template take<T>(width)}, merged{scratch.template take<T>(width)};
  start(none, K);

  for (Index b = 0; b < B; ++b) {
    for (Index n = 0; n < N; ++n) {
      for (Index c = 0; c < C; ++c) {
        const bool starts = c % w == 0;
        push(prefix(c), starts ? none : prefix(c - 1), logit_of<T>(a, b, n, c), &x(b, c, n, 0), K);
      }
      for (Index c = C - 1; c >= 0; --c) {
        const bool starts = c % w == w - 1 || c == C - 1;
        push(suffix(c), starts ? none : suffix(c + 1), logit_of<T>(a, b, n, c), &x(b, c, n, 0), K);
      }
      for (Index c = 0; c < C; ++c) {
        const Index first = c - w + 1;
        // Then the prefix is the window. The suffix from `first` would be the same block again, and count it twice.
        const bool in_one_block = first < 0 || first % w == 0;
        merge(merged, in_one_block ? none : suffix(first), prefix(c), K);
        max(b, n, c) = merged.max();
        sum(b, n, c) = merged.sum();
        for (Index k = 0; k < K; ++k) out(b, c, n, k) = merged.out(k);
      }
    }
  }
}

namespace {

template <class Device, class T>
void backward_global(Device& device, const PoolingBackward<T>& a) {
  const auto [B, C, N, K, window] = a.shape;
  const auto x = heads(a.x_bch, a.x_stride, C, N, K), out = heads(a.out_bch, 0, C, N, K);
  const auto d_out = heads(a.d_out_bch, 0, C, N, K);
  const auto d_x = heads(a.d_x_bch, a.d_x_stride, C, N, K);
  const auto d_logit = array(a.d_logit_bnc, N, C);
  const auto max = array(a.max_bnc, N, C), sum = array(a.sum_bnc, N, C);
  typename Device::Scope scratch(device.workspace);
  T* adjoint_k = scratch.template take<T>(K);

  for (Index b = 0; b < B; ++b) {
    for (Index n = 0; n < N; ++n) {
      T drift = T(0), beta_next = T(0);  // drift_c and beta_{c+1}: nothing follows the last position
      for (Index k = 0; k < K; ++k) adjoint_k[k] = T(0);
      for (Index c = C - 1; c >= 0; --c) {
        // alpha is not saved: (pooling.4) again. Of nothing seen so far every share is 0, not 0/0.
        const bool nothing = sum(b, n, c) == T(0);
        const T share = nothing ? T(0) : T(1) / sum(b, n, c);
        const T alpha = power(logit_of<T>(a, b, n, c), max(b, n, c)) * share;
        const T beta = c == 0 ? T(0) : sum(b, n, c - 1) * power(max(b, n, c - 1), max(b, n, c)) * share;  // (pooling.9)
        T kappa = T(0);
        for (Index k = 0; k < K; ++k) {
          adjoint_k[k] = d_out(b, c, n, k) + beta_next * adjoint_k[k];                       // (pooling.10)
          d_x(b, c, n, k) = alpha * adjoint_k[k] + (a.accumulate ? d_x(b, c, n, k) : T(0));  // (pooling.11)
          kappa += (x(b, c, n, k) - out(b, c, n, k)) * adjoint_k[k];                         // (pooling.12)
        }
        d_logit(b, n, c) = alpha * (kappa + drift);  // (pooling.13)
        drift = beta * drift - alpha * kappa;        // (pooling.14)
        beta_next = beta;
      }
    }
  }
}

template <class Device, class T>
void backward_windowed(Device& device, const PoolingBackward<T>& a) {
  const auto [B, C, N, K, w] = a.shape;
  const auto x = heads(a.x_bch, a.x_stride, C, N, K), out = heads(a.out_bch, 0, C, N, K);
  const auto d_out = heads(a.d_out_bch, 0, C, N, K);
  const auto d_x = heads(a.d_x_bch, a.d_x_stride, C, N, K);
  const auto d_logit = array(a.d_logit_bnc, N, C);
  const auto max = array(a.max_bnc, N, C), sum = array(a.sum_bnc, N, C);
  typename Device::Scope scratch(device.workspace);
  T* pull_k = scratch.template take<T>(K);
  T* pulled_k = scratch.template take<T>(K);

  for (Index b = 0; b < B; ++b) {
    for (Index n = 0; n < N; ++n) {
      for (Index c = 0; c < C; ++c) {
        // The windows that c lies in: down those that end in its block, up those that end in the next, [first, end).
        const Index seen_until = c + w < C ? c + w : C;
        const Index block_end = (c / w + 1) * w < seen_until ? (c / w + 1) * w : seen_until;
        T from_out = T(0);  // d_out . out in the place of d_out
        for (Index k = 0; k < K; ++k) pulled_k[k] = T(0);
        for (const bool down : {true, false}) {
          const Index first = down ? c : block_end, end = down ? block_end : seen_until;
          T top = T(-infinity), pull_out = T(0);
          for (Index k = 0; k < K; ++k) pull_k[k] = T(0);
          for (Index s = first; s < end; ++s) {
            if (sum(b, n, s) != T(0) && -max(b, n, s) > top) top = -max(b, n, s);  // (pooling.15)
          }
          for (Index s = first; s < end; ++s) {
            if (sum(b, n, s) == T(0)) continue;  // a window that sees nothing has no say
            const T weight = exp(-max(b, n, s) - top) / sum(b, n, s);
            for (Index k = 0; k < K; ++k) {
              pull_k[k] += weight * d_out(b, s, n, k);                   // (pooling.16)
              pull_out += weight * d_out(b, s, n, k) * out(b, s, n, k);  // (pooling.16)
            }
          }
          // At most 1: logit_c is among the logits of each of these windows, so -top, the least of their maxima, is no
          // less. 0 for a masked position, and where no window is on this side.
          const T weight = exp(logit_of<T>(a, b, n, c) + top);
          for (Index k = 0; k < K; ++k) pulled_k[k] += weight * pull_k[k];  // (pooling.17)
          from_out += weight * pull_out;
        }
        T from_x = T(0);
        for (Index k = 0; k < K; ++k) {
          from_x += x(b, c, n, k) * pulled_k[k];
          d_x(b, c, n, k) = pulled_k[k] + (a.accumulate ? d_x(b, c, n, k) : T(0));
        }
        d_logit(b, n, c) = from_x - from_out;  // (pooling.18)
      }
    }
  }
}

}  // namespace

template <class Device, class T>
void pooling_backward(Device& device, const PoolingBackward<T>& a) {
  if (window_of(a.shape) < a.shape.C) {
    backward_windowed(device, a);
  } else {
    backward_global(device, a);
  }
}

// ---- Step by step ----

namespace {

// The state: one triple a head of all that is seen; with a window, before it where in the ring the next position goes,
// and behind it a ring of the last w positions, a triple each. `place` 0 is the former, 1 + r position r of the ring.
template <class T>
State<T> state_of(T* state, Index place, Index n, const PoolingShape& s) {
  T* triples = s.window > 0 ? state + 1 : state;
  return {&array(triples, s.N, s.K + 2)(place, n, 0)};
}

}  // namespace

template <class Device, class T>
void pooling_start(Device&, Accum<T>* state, const PoolingShape& s) {
  if (s.window > 0) state[0] = T(0);
  for (Index place = 0; place < s.window + 1; ++place) {
    for (Index n = 0; n < s.N; ++n) start(state_of<T>(state, place, n, s), s.K);
  }
}

template <class Device, class T>
void pooling_step(Device&, T* out_h, Accum<T>* state, const Accum<T>* logit_n, const T* x_h, const PoolingShape& s) {
  const Index w = s.window, newest = w > 0 ? static_cast<Index>(static_cast<double>(state[0])) : 0;
  const auto x = array(x_h, s.K);
  const auto out = array(out_h, s.K);
  for (Index n = 0; n < s.N; ++n) {
    const State<T> seen = state_of<T>(state, 0, n, s);
    if (w > 0) {
      const State<T> here = state_of<T>(state, 1 + newest, n, s);
      here.max() = logit_n[n];
      for (Index k = 0; k < s.K; ++k) here.out(k) = x(n, k);
      start(seen, s.K);
      // A window pooled anew at every step, w times the work: the plain way, and the other devices' reference.
      // The oldest first. Places that nothing has filled yet have a logit of -infinity.
      for (Index r = 1; r <= w; ++r) {
        const State<T> position = state_of<T>(state, 1 + (newest + r) % w, n, s);
        push(seen, seen, position.max(), &position.out(0), s.K);
      }
    } else {
      push(seen, seen, logit_n[n], &x(n, 0), s.K);
    }
    for (Index k = 0; k < s.K; ++k) out(n, k) = seen.out(k);
  }
  if (w > 0) state[0] = T((newest + 1) % w);
}

#define INSTANTIATE(T)                                                                                        \
  template decltype(pooling_definition_forward<PlainDevice, T>) pooling_definition_forward<PlainDevice, T>;   \
  template decltype(pooling_definition_backward<PlainDevice, T>) pooling_definition_backward<PlainDevice, T>; \
  template decltype(pooling_forward<PlainDevice, T>) pooling_forward<PlainDevice, T>;                         \
  template decltype(pooling_backward<PlainDevice, T>) pooling_backward<PlainDevice, T>;                       \
  template decltype(pooling_start<PlainDevice, T>) pooling_start<PlainDevice, T>;                             \
  template decltype(pooling_step<PlainDevice, T>) pooling_step<PlainDevice, T>;
ABH_FOR_EACH_SCALAR(INSTANTIATE)

}  // namespace abh
