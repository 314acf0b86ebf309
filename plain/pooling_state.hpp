#pragma once

// Shared code of the poolings in plain/: masked logits, and a pooling state in memory. Inference, windows and decay use
// the state.

#include "layers/pooling.hpp"
#include "plain/view.hpp"

namespace abh {

namespace {

// Number of positions in a window.
inline Index window_of(const PoolingShape& s) { return s.window > 0 && s.window < s.C ? s.window : s.C; }

// Logit of a position; -infinity if it is masked.
template <class T>
Accum<T> logit_of(const PoolingInputs<T>& in, Index b, Index n, Index c) {
  const bool left_out = in.mask_bc && array(in.mask_bc, in.shape.C)(b, c) == 0;
  return left_out ? Accum<T>(-infinity) : array(in.logit_bnc, in.shape.N, in.shape.C)(b, n, c);
}

// Decay of a logit per position. Without decay it is 0, which changes no bit.
template <class T>
T slope_of(const T* slope_n, Index n) {
  return slope_n ? slope_n[n] : T(0);
}

// e^(logit - most), at most 1; `most` is the largest logit of the sum. The result for logit = -infinity is 0, also if
// `most` is -infinity, where the difference would be NaN.
template <class T>
T exp_shifted(T logit, T most) {
  return logit == T(-infinity) ? T(0) : exp(logit - most);
}

// Value of a number after it is stored in a state: the rounded number plus the remainder. In double the remainder is 0.
template <class T>
Extended<T> kept(Extended<T> x) {
  return Extended<T>(T(x)) + Extended<T>(T(x - Extended<T>(T(x))));
}

// State of some positions of a head; T is Accum<T> of a layer. It holds the largest logit (top), the number of
// positions since (age), the sum relative to max = top - slope age (sum e^max is the sum of all e^logit), and the
// averages of J numbers. The sum and the averages are pairs: the rounded value and its rounding error.
template <class T>
struct State {
  using S = Extended<T>;
  T* numbers;  // top, sum, averages, rounding errors of the sum and of the averages
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

// Sets the state before the first position.
template <class T>
void start(const State<T>& state) {
  state.age = T(0);
  state.top() = T(-infinity);
  state.set_sum(0);
  for (Index j = 0; j < state.J; ++j) state.set_out(j, 0);
}

// Adds a position: now = before, aged by one position, merged with (logit, x_j). Both may be the same state. After an
// empty state sum is 0 and alpha is 1, for any out. A masked position has a power of 0, so alpha is 0.
template <class T, class Payload>
void push(const State<T>& now, const State<T>& before, T logit, T slope, const Payload& x) {
  using S = Extended<T>;
  const S aged = S(before.top()) - S(slope) * S(before.age + T(1));  // (pooling_decay.2)
  const bool stays = S(logit) < aged;
  const S max = stays ? aged : S(logit);                                             // (pooling.2)
  const S sum = before.sum() * exp_shifted(aged, max) + exp_shifted(S(logit), max);  // (pooling.3)
  const S alpha = sum == S(0) ? S(0) : exp_shifted(S(logit), max) / sum;             // (pooling.4)
  for (Index j = 0; j < now.J; ++j) {
    now.set_out(j, before.out(j) + alpha * (S(x(j)) - before.out(j)));  // (pooling.5)
  }
  now.top() = stays ? before.top() : logit;    // (pooling_decay.3)
  now.age = stays ? before.age + T(1) : T(0);  // (pooling_decay.3)
  now.set_sum(sum);
}

}  // namespace

}  // namespace abh
