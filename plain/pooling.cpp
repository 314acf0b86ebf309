#include "layers/pooling.hpp"

#include "plain/view.hpp"

namespace abh {

namespace {

// How many positions a window holds.
Index window_of(const PoolingShape& s) { return s.window > 0 && s.window < s.C ? s.window : s.C; }

// The logit of a position, -infinity where the mask leaves it out.
template <class T>
T logit_of(const PoolingInputs<T>& in, Index b, Index n, Index c) {
  const bool left_out = in.mask_bc && array(in.mask_bc, in.shape.C)(b, c) == 0;
  return left_out ? T(-infinity) : array(in.logit_bnc, in.shape.N, in.shape.C)(b, n, c);
}

// What a logit loses a position. Without decay the same steps with 0, which change no bit.
template <class T>
T slope_of(const T* slope_n, Index n) {
  return slope_n ? slope_n[n] : T(0);
}

// e^(logit - most), at most 1: most is the largest logit of those concerned. Nothing weighs 0 beside nothing, too,
// where the difference would be -infinity less -infinity.
template <class T>
T power(T logit, T most) {
  return logit == T(-infinity) ? T(0) : exp(logit - most);
}

// ---- The definition ----

// The positions that c sees, [first, end).
struct SeenPositions {
  Index first, end;
};
SeenPositions seen_by(const PoolingShape& s, Index c) {
  if (!s.causal) return {0, s.C};
  const Index w = window_of(s);
  return {c < w ? 0 : c - w + 1, c + 1};
}

// The weights of the positions s that c sees, softmax of their logits; 0 for all when c sees nothing.
template <class T>
SeenPositions weights_of(T* weight_s, const PoolingInputs<T>& in, Index b, Index n, Index c) {
  const SeenPositions seen = seen_by(in.shape, c);
  const T slope = slope_of(in.slope_n, n);
  const auto decayed = [&](Index s) { return logit_of(in, b, n, s) - slope * T(c - s); };
  T most = T(-infinity);
  Longer<T> total = 0;
  for (Index s = seen.first; s < seen.end; ++s) {
    if (decayed(s) > most) most = decayed(s);
  }
  // Relative to the largest: the factor e^-most cancels in the quotient, and nothing overflows.
  for (Index s = seen.first; s < seen.end; ++s) total += power(decayed(s), most);
  for (Index s = seen.first; s < seen.end; ++s) {
    weight_s[s] = total == Longer<T>(0) ? T(0) : T(power(decayed(s), most) / total);
  }
  return seen;
}

}  // namespace

template <class Device, class T>
void pooling_definition_forward(Device& device, const PoolingForward<T>& a) {
  const auto [B, C, N, K, window, causal, payloads] = a.in.shape;
  const auto x = heads(a.in.x_bch, a.in.x_stride, C, payloads * N, K);
  const auto out = heads(a.out_bch, 0, C, payloads * N, K);
  typename Device::Scope scratch(device.workspace);
  T* weight_s = scratch.template take<T>(C);
  for (Index b = 0; b < B; ++b) {
    for (Index m = 0; m < payloads * N; ++m) {
      for (Index c = 0; c < C; ++c) {
        const SeenPositions seen = weights_of(weight_s, a.in, b, m % N, c);
        for (Index k = 0; k < K; ++k) {
          Longer<T> average = 0;
          for (Index s = seen.first; s < seen.end; ++s) {
            average += weight_s[s] * x(b, s, m, k);  // (pooling.1) (pooling.19)
          }
          out(b, c, m, k) = T(average);
        }
      }
    }
  }
}

// The gradients of these as they stand: out is linear in x_s, with the factor weight_s, and by the quotient rule its
// derivative with respect to logit_s is weight_s (x_s - out). That of the logarithm of the sum of weights is weight_s.
template <class Device, class T>
void pooling_definition_backward(Device& device, const PoolingBackward<T>& a) {
  const auto [B, C, N, K, window, causal, payloads] = a.in.shape;
  const auto x = heads(a.in.x_bch, a.in.x_stride, C, payloads * N, K),
             d_out = heads(a.d_out_bch, 0, C, payloads * N, K);
  const auto d_x = heads(a.d_x_bch, a.d_x_stride, C, payloads * N, K);
  const auto d_logit = array(a.d_logit_bnc, N, C);
  typename Device::Scope scratch(device.workspace);
  T* weight_s = scratch.template take<T>(C);
  for (Index b = 0; b < B; ++b) {
    for (Index n = 0; n < N; ++n) {
      for (Index c = 0; c < C; ++c) {
        d_logit(b, n, c) = T(0);
        for (Index m = n; m < payloads * N; m += N) {
          for (Index k = 0; k < K && !a.accumulate; ++k) d_x(b, c, m, k) = T(0);
        }
      }
      for (Index c = 0; c < C; ++c) {
        const SeenPositions seen = weights_of(weight_s, a.in, b, n, c);
        for (Index m = n; m < payloads * N; m += N) {
          for (Index k = 0; k < K; ++k) {
            Longer<T> out = 0;
            for (Index s = seen.first; s < seen.end; ++s) out += weight_s[s] * x(b, s, m, k);
            for (Index s = seen.first; s < seen.end; ++s) {
              d_x(b, s, m, k) += weight_s[s] * d_out(b, c, m, k);
              d_logit(b, n, s) += weight_s[s] * d_out(b, c, m, k) * (x(b, s, m, k) - T(out));
            }
          }
        }
        for (Index s = seen.first; s < seen.end && a.d_lse_bnc; ++s) {
          if (weight_s[s] != T(0)) d_logit(b, n, s) += weight_s[s] * array(a.d_lse_bnc, N, C)(b, n, c);
        }
      }
    }
  }
}

template <class Device, class T>
void pooling_weights(Device&, T* weight_bncs, const PoolingInputs<T>& in) {
  const Index B = in.shape.B, C = in.shape.C, N = in.shape.N;
  const auto weight = array(weight_bncs, N, C, C);
  for (Index b = 0; b < B; ++b) {
    for (Index n = 0; n < N; ++n) {
      for (Index c = 0; c < C; ++c) {
        for (Index s = 0; s < C; ++s) weight(b, n, c, s) = T(0);
        weights_of(&weight(b, n, c, 0), in, b, n, c);
      }
    }
  }
}

// ---- The recurrence ----

namespace {

// What is known of some positions of a head: the largest logit as it was and the positions since, their sum relative to
// max = top - slope age, sum e^max being the sum of the e^logit, and the average of each of J numbers of payload. Sum
// and averages are kept as pairs, what a number is rounded to and what that left.
template <class T>
struct State {
  using S = Longer<T>;
  T* numbers;  // top, sum, averages, what rounding left of the sum and of the averages
  T& age;
  Index J;
  T& top() const { return numbers[0]; }
  S sum() const { return S(numbers[1]) + S(numbers[2 + J]); }
  S out(Index j) const { return S(numbers[2 + j]) + S(numbers[3 + J + j]); }
  void set_sum(S sum) const { set(1, sum); }
  void set_out(Index j, S out) const { set(2 + j, out); }
  S max(T slope) const { return S(top()) - S(slope) * S(age); }

  static Index size(Index J) { return 2 * (J + 1) + 1; }

 private:
  void set(Index i, S x) const {
    numbers[i] = T(x);
    numbers[i + J + 1] = T(x - S(numbers[i]));
  }
};

// Of no position.
template <class T>
void start(const State<T>& state) {
  state.age = T(0);
  state.top() = T(-infinity);
  state.set_sum(0);
  for (Index j = 0; j < state.J; ++j) state.set_out(j, 0);
}

// One position more: now = before and (logit, x_j). Both may be one state. After no position sum is 0 and alpha
// 1, whatever out held; a masked position has a power of 0, so alpha is 0 and nothing moves.
template <class T, class Payload>
void push(const State<T>& now, const State<T>& before, T logit, T slope, const Payload& x) {
  using S = Longer<T>;
  const S aged = S(before.top()) - S(slope) * S(before.age + T(1));  // (pooling.20)
  const bool stays = S(logit) < aged;
  const S max = stays ? aged : S(logit);                                 // (pooling.2)
  const S sum = before.sum() * power(aged, max) + power(S(logit), max);  // (pooling.3)
  const S alpha = sum == S(0) ? S(0) : power(S(logit), max) / sum;       // (pooling.4)
  for (Index j = 0; j < now.J; ++j) {
    now.set_out(j, before.out(j) + alpha * (S(x(j)) - before.out(j)));  // (pooling.5)
  }
  now.top() = stays ? before.top() : logit;    // (pooling.21)
  now.age = stays ? before.age + T(1) : T(0);  // (pooling.21)
  now.set_sum(sum);
}

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

// A state of one position that stands for many, with what rounding left of its logit and payload; and what it left of a
// state.
template <class T>
void add_rest(const State<T>& state, const PoolingRest<const T>& rest, Index n, const PoolingShape& s) {
  using S = Longer<T>;
  state.set_sum(state.sum() * (S(1) + S(rest.weight_n[n])));  // e^rest, of next to nothing
  for (Index j = 0; j < state.J; ++j) {
    state.set_out(j, state.out(j) + S(array(rest.payload_h, s.K)(j / s.K * s.N + n, j % s.K)));
  }
}
template <class T>
void write_rest(const PoolingRest<T>& rest, const State<T>& state, Index n, const PoolingShape& s) {
  using S = Longer<T>;
  rest.weight_n[n] = T(state.sum() - S(T(state.sum())));
  for (Index j = 0; j < state.J; ++j) {
    array(rest.payload_h, s.K)(j / s.K * s.N + n, j % s.K) = T(state.out(j) - S(T(state.out(j))));
  }
}

// A global window is one block, whose prefixes are the result. The reference takes the way of a window there, too: its
// suffixes are computed and not used.
template <class Device, class T>
void forward_causal(Device& device, const PoolingForward<T>& a) {
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

// One average for all positions.
template <class Device, class T>
void forward_of_all(Device&, const PoolingForward<T>& a) {
  using S = Longer<T>;
  const auto [B, C, N, K, window, causal, payloads] = a.in.shape;
  const auto x = heads(a.in.x_bch, a.in.x_stride, C, payloads * N, K);
  const auto out = heads(a.out_bch, 0, C, payloads * N, K);
  const auto max = array(a.max_bnc, N, C), sum = array(a.sum_bnc, N, C);
  for (Index b = 0; b < B; ++b) {
    for (Index n = 0; n < N; ++n) {
      T most = T(-infinity);
      S total = S(0);
      for (Index c = 0; c < C; ++c) {
        const T logit = logit_of(a.in, b, n, c);
        if (logit > most) most = logit;
      }
      for (Index c = 0; c < C; ++c) total += S(power(logit_of(a.in, b, n, c), most));
      for (Index c = 0; c < C; ++c) {
        max(b, n, c) = most;
        sum(b, n, c) = T(total);
      }
      for (Index m = n; m < payloads * N; m += N) {
        for (Index k = 0; k < K; ++k) {
          S average = S(0);
          for (Index c = 0; c < C; ++c) {
            const S alpha = total == S(0) ? S(0) : S(power(logit_of(a.in, b, n, c), most)) / total;
            average += alpha * S(x(b, c, m, k));  // (pooling.25)
          }
          for (Index c = 0; c < C; ++c) out(b, c, m, k) = T(average);
        }
      }
    }
  }
}

}  // namespace

template <class Device, class T>
void pooling_forward(Device& device, const PoolingForward<T>& a) {
  if (a.in.shape.causal) {
    forward_causal(device, a);
  } else {
    forward_of_all(device, a);
  }
}

namespace {

template <class Device, class T>
void backward_global(Device& device, const PoolingBackward<T>& a) {
  const auto [B, C, N, K, window, causal, payloads] = a.in.shape;
  const auto x = heads(a.in.x_bch, a.in.x_stride, C, payloads * N, K), out = heads(a.out_bch, 0, C, payloads * N, K);
  const auto d_out = heads(a.d_out_bch, 0, C, payloads * N, K);
  const auto d_x = heads(a.d_x_bch, a.d_x_stride, C, payloads * N, K);
  const auto d_logit = array(a.d_logit_bnc, N, C);
  const auto max = array(a.max_bnc, N, C), sum = array(a.sum_bnc, N, C);
  using S = Longer<T>;
  typename Device::Scope scratch(device.workspace);
  const auto adjoint = array(scratch.template take<S>(payloads * N * K), K);

  for (Index b = 0; b < B; ++b) {
    for (Index n = 0; n < N; ++n) {
      const T slope = slope_of(a.in.slope_n, n);
      S drift = 0, beta_next = 0;  // drift_c and beta_{c+1}: nothing follows the last position
      for (Index m = n; m < payloads * N; m += N) {
        for (Index k = 0; k < K; ++k) adjoint(m, k) = 0;
      }
      for (Index c = C - 1; c >= 0; --c) {
        // alpha is not saved: (pooling.4) again. Of nothing seen so far every share is 0, not 0/0.
        const S total = S(sum(b, n, c)), most = S(max(b, n, c));
        const bool nothing = total == S(0);
        const S share = nothing ? S(0) : S(1) / total;
        const S logit = S(logit_of(a.in, b, n, c));
        const S alpha = power(logit, most) * share;
        S beta = 0;
        if (c > 0) {
          const S aged = logit < most ? most : S(max(b, n, c - 1)) - S(slope);  // (pooling.22)
          beta = S(sum(b, n, c - 1)) * power(aged, most) * share;               // (pooling.9)
        }
        S kappa = 0;
        for (Index m = n; m < payloads * N; m += N) {
          for (Index k = 0; k < K; ++k) {
            adjoint(m, k) = S(d_out(b, c, m, k)) + beta_next * adjoint(m, k);                      // (pooling.10)
            d_x(b, c, m, k) = T(alpha * adjoint(m, k)) + (a.accumulate ? d_x(b, c, m, k) : T(0));  // (pooling.11)
            kappa += (S(x(b, c, m, k)) - S(out(b, c, m, k))) * adjoint(m, k);                      // (pooling.12)
          }
        }
        if (a.d_lse_bnc && !nothing) drift += S(array(a.d_lse_bnc, N, C)(b, n, c));  // (pooling.28)
        d_logit(b, n, c) = T(alpha * (kappa + drift));                               // (pooling.13)
        drift = beta * drift - alpha * kappa;                                        // (pooling.14)
        beta_next = beta;
      }
    }
  }
}

template <class Device, class T>
void backward_windowed(Device& device, const PoolingBackward<T>& a) {
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

template <class Device, class T>
void backward_of_all(Device&, const PoolingBackward<T>& a) {
  const auto [B, C, N, K, window, causal, payloads] = a.in.shape;
  const auto x = heads(a.in.x_bch, a.in.x_stride, C, payloads * N, K), out = heads(a.out_bch, 0, C, payloads * N, K);
  const auto d_out = heads(a.d_out_bch, 0, C, payloads * N, K);
  const auto d_x = heads(a.d_x_bch, a.d_x_stride, C, payloads * N, K);
  const auto d_logit = array(a.d_logit_bnc, N, C);
  const auto max = array(a.max_bnc, N, C), sum = array(a.sum_bnc, N, C);
  using S = Longer<T>;
  for (Index b = 0; b < B; ++b) {
    for (Index n = 0; n < N; ++n) {
      S d_lse = 0;
      for (Index c = 0; c < C; ++c) {
        d_logit(b, n, c) = T(0);
        if (a.d_lse_bnc) d_lse += S(array(a.d_lse_bnc, N, C)(b, n, c));
      }
      const auto alpha_of = [&, b = b, n = n](Index c) {
        return sum(b, n, c) == T(0) ? S(0) : S(power(logit_of(a.in, b, n, c), max(b, n, c))) / S(sum(b, n, c));
      };
      for (Index m = n; m < payloads * N; m += N) {
        for (Index k = 0; k < K; ++k) {
          S adjoint = 0;
          for (Index c = 0; c < C; ++c) adjoint += S(d_out(b, c, m, k));
          for (Index c = 0; c < C; ++c) {
            const S alpha = alpha_of(c);
            d_x(b, c, m, k) = T(alpha * adjoint) + (a.accumulate ? d_x(b, c, m, k) : T(0));    // (pooling.26)
            d_logit(b, n, c) += T(alpha * (S(x(b, c, m, k)) - S(out(b, c, m, k))) * adjoint);  // (pooling.27)
          }
        }
      }
      for (Index c = 0; c < C; ++c) {
        const S alpha = alpha_of(c);
        if (alpha != S(0)) d_logit(b, n, c) += T(alpha * d_lse);  // (pooling.27)
      }
    }
  }
}

}  // namespace

template <class Device, class T>
void pooling_backward(Device& device, const PoolingBackward<T>& a) {
  if (!a.in.shape.causal) {
    backward_of_all(device, a);
  } else if (window_of(a.in.shape) < a.in.shape.C) {
    backward_windowed(device, a);
  } else {
    backward_global(device, a);
  }
}

// ---- Step by step ----

namespace {

// The state: one a head of all that is seen; with a window, before it where in the ring the next position goes, and
// behind it a ring of the last w positions, a state each. `place` 0 is the former, 1 + r position r of the ring. The
// age stands last; a state without decay has none, and uses that of a step.
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
  T age_of_step = T(0);
  if (s.window > 0) state[0] = T(0);
  for (Index place = 0; place < s.window + 1; ++place) {
    for (Index n = 0; n < s.N; ++n) start(state_of<T>(state, place, n, s, decays, age_of_step));
  }
}

template <class Device, class T>
void pooling_step(Device&, const PoolingStep<T>& a) {
  const PoolingShape& s = a.shape;
  const Index w = s.window, newest = w > 0 ? static_cast<Index>(static_cast<double>(a.state[0])) : 0;
  const Index N = s.N, K = s.K, J = s.payloads * K;
  const auto x = array(a.x_h, K);
  const auto out = array(a.out_h, K);
  T age_of_step = T(0);
  for (Index n = 0; n < N; ++n) {
    const T slope = slope_of(a.slope_n, n);
    const auto place = [&, n = n](Index i) { return state_of<T>(a.state, i, n, s, a.slope_n != nullptr, age_of_step); };
    const auto payload = [&, n = n](Index j) { return x(j / K * N + n, j % K); };
    const State<T> seen = place(0);
    if (w > 0) {
      const State<T> here = place(1 + newest);
      here.top() = a.logit_n[n];
      for (Index j = 0; j < J; ++j) here.set_out(j, payload(j));
      start(seen);
      // A window pooled anew at every step, w times the work: the plain way, and the other devices' reference.
      // The oldest first. Places that nothing has filled yet have a logit of -infinity.
      for (Index r = 1; r <= w; ++r) {
        const State<T> position = place(1 + (newest + r) % w);
        push(seen, seen, position.top(), slope, [&](Index j) { return position.out(j); });
      }
    } else {
      push(seen, seen, a.logit_n[n], slope, payload);
    }
    for (Index j = 0; j < J; ++j) out(j / K * N + n, j % K) = T(seen.out(j));
    a.max_n[n] = T(seen.max(slope));
    a.sum_n[n] = T(seen.sum());
  }
  if (w > 0) a.state[0] = T((newest + 1) % w);
}

#define INSTANTIATE(T)                                                                                        \
  template decltype(pooling_definition_forward<PlainDevice, T>) pooling_definition_forward<PlainDevice, T>;   \
  template decltype(pooling_definition_backward<PlainDevice, T>) pooling_definition_backward<PlainDevice, T>; \
  template decltype(pooling_weights<PlainDevice, T>) pooling_weights<PlainDevice, T>;                         \
  template decltype(pooling_forward<PlainDevice, T>) pooling_forward<PlainDevice, T>;                         \
  template decltype(pooling_backward<PlainDevice, T>) pooling_backward<PlainDevice, T>;                       \
  template decltype(pooling_start<PlainDevice, T>) pooling_start<PlainDevice, T>;                             \
  template decltype(pooling_step<PlainDevice, T>) pooling_step<PlainDevice, T>;
ABH_FOR_EACH_SCALAR(INSTANTIATE)

}  // namespace abh
