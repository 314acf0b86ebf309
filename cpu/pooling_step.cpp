#include "cpu/pooling_decay.hpp"

namespace abh {

// Inference of pooling.

namespace {

// State in memory of one head over some positions: top, sum, the averages of all payloads, the rounding errors of the
// averages and of the sum, and with decay age.
template <class T>
struct State {
  T* top;
  T* sum;
  T* average_k;
  T* sum_rest;
  T* rest_k;
  T* age;
};

// States of a step. Without decay they have no age, and updates of it are discarded.
template <class T>
struct States {
  T* memory;
  const PoolingShape& shape;
  bool decays;
  T* no_age;
  Index width() const { return 2 * (J() + 1) + 1; }
  Index size() const { return width() + (decays ? 1 : 0); }
  State<T> operator[](Index i) const {
    T* first = memory + i * size();
    T* rests = first + 2 + J();
    return {first, first + 1, first + 2, rests, rests + 1, decays ? first + width() : no_age};
  }

 private:
  Index J() const { return shape.payloads * shape.K; }
};

// Values of one head; the payloads are `gap` elements apart.
template <class T>
struct Payloads {
  const T* x_k;
  Index gap;
};

// Average and its rounding error after one more position. The rounding error of a sum of two numbers is computed by
// differences, which are exact if the first number is larger (Dekker 1971).
template <class T, class X>
void average_row(T* average_k, T* rest_k, const T* from_k, const T* from_rest_k, bool starts, T alpha, const X* x,
                 Index size) {
  for_lanes<T>(size, [=]<class L>(Index k) {
    const L before = starts ? splat<L>(T(0)) : load<L>(from_k + k);
    const L rest = starts ? splat<L>(T(0)) : load<L>(from_rest_k + k);
    const L moved = fused<L>((load<L>(x + k) - before) - rest, alpha, rest);  // (pooling.5)
    const L average = before + moved;
    store<L>(average_k + k, average);
    store<L>(rest_k + k, moved - (average - before));
  });
}

// to = from plus one position. to may be from; the values may be those of to.
template <class T, class X>
void push(const State<T>& to, const State<T>& from, T logit, T slope, const Payloads<X>& x, const PoolingShape& s) {
  const bool starts = *from.sum == T(0);
  const bool nothing_new = logit == minus_infinity<T>();
  const T aged = fused<T>(-slope, *from.age + T(1), *from.top);  // (pooling_decay.2)
  const bool stays = logit < aged || nothing_new;
  const T most = stays ? aged : logit;  // (pooling.2)
  const T keep = starts || nothing_new ? T(1) : exponential<T>(aged - most);
  const T add = nothing_new ? T(0) : exponential<T>(logit - most);
  using S = Extended<T>;
  const S sum = fused<S>(S(*from.sum) + S(*from.sum_rest), S(keep), S(add));  // (pooling.3)
  const T alpha = nothing_new ? T(0) : add / T(sum);                          // (pooling.4)
  for (Index p = 0; p < s.payloads; ++p) {
    const Index j = p * s.K;
    average_row(to.average_k + j, to.rest_k + j, from.average_k + j, from.rest_k + j, starts, alpha, x.x_k + p * x.gap,
                s.K);
  }
  *to.top = stays ? *from.top : logit;        // (pooling_decay.3)
  *to.age = stays ? *from.age + T(1) : T(0);  // (pooling_decay.3)
  *to.sum = T(sum);
  *to.sum_rest = T(sum - S(*to.sum));
}

// Merged weight of two states, a suffix that ended `distance` positions ago and the positions since, and the share of
// the older state.
template <class T>
struct Merged {
  T max, sum, share;
};
template <class T>
Merged<T> merge(const State<T>& older, const State<T>& newer, T slope, Index distance) {
  const T max_older = fused<T>(-slope, T(distance), *older.top);  // (pooling_sliding_window.8)
  const T max_newer = fused<T>(-slope, *newer.age, *newer.top);
  if (*older.sum == T(0)) return {max_newer, *newer.sum, T(0)};
  if (*newer.sum == T(0)) return {max_older, *older.sum, T(1)};
  const T most = larger<T>(max_older, max_newer);
  const T old_sum = *older.sum * exponential<T>(max_older - most);
  const T sum = fused<T>(*newer.sum, exponential<T>(max_newer - most), old_sum);  // (pooling_sliding_window.1)
  return {most, sum, old_sum / sum};                                              // (pooling_sliding_window.2)
}

template <class T>
void clear(const State<T>& state, const PoolingShape& s) {
  *state.top = minus_infinity<T>();
  *state.sum = *state.sum_rest = T(0);
  *state.age = T(0);
  for (Index k = 0; k < s.payloads * s.K; ++k) state.average_k[k] = state.rest_k[k] = T(0);
}

}  // namespace

// State: the prefix of every head; with a window, preceded by the number of positions in the current block and followed
// by one state per position of the block, for every head. Position r of the previous block is not needed after the
// current block reaches r, so one array holds both: up to r single positions of this block, after r the suffixes of the
// previous block, as states at its end.
template <class Device, class T>
void pooling_start(Device&, Accum<T>* state, const PoolingShape& s, bool decays) {
  using A = Accum<T>;
  const bool windowed = s.window > 0;
  A no_age = A(0);
  const States<A> states{windowed ? state + 1 : state, s, decays, &no_age};
  if (windowed) state[0] = A(0);
  for (Index i = 0; i < (windowed ? s.window + 1 : 1) * s.N; ++i) clear(states[i], s);
}

template <class Device, class T>
void pooling_step(Device&, const PoolingStep<T>& a) {
  using A = Accum<T>;
  const PoolingShape& s = a.shape;
  const bool windowed = s.window > 0;
  const Index in_block = windowed ? static_cast<Index>(static_cast<double>(a.state[0])) : 0;
  A no_age = A(0);
  const States<A> states{windowed ? a.state + 1 : a.state, s, a.slope_n != nullptr, &no_age};
  for (Index n = 0; n < s.N; ++n) {
    const auto position = [&](Index r) { return states[(r + 1) * s.N + n]; };
    const State<A> prefix = states[n];
    const A slope = slope_of(a.slope_n, n);
    const Payloads<T> x{a.x_h + n * s.K, s.N * s.K};
    if (windowed && in_block == 0) clear(prefix, s);
    push<A>(prefix, prefix, a.logit_n[n], slope, x, s);

    // Suffix of the previous block that completes the window; none at the end of a block, where the block is the
    // window.
    const bool ends = in_block + 1 == s.window;
    const State<A> suffix = windowed && !ends ? position(in_block + 1) : prefix;
    const Merged<A> merged = windowed && !ends
                                 ? merge(suffix, prefix, slope, in_block + 1)
                                 : Merged<A>{fused<A>(-slope, *prefix.age, *prefix.top), *prefix.sum, A(0)};
    a.max_n[n] = merged.max;
    a.sum_n[n] = merged.sum;
    for (Index p = 0; p < s.payloads; ++p) {
      const A* prefix_k = prefix.average_k + p * s.K;
      const A* suffix_k = suffix.average_k + p * s.K;
      T* out_k = a.out_h + (p * s.N + n) * s.K;
      for_lanes<T>(s.K, [&]<class L>(Index k) {
        const L newer = load<L>(prefix_k + k);
        const L merged_out =
            fused<L>(load<L>(suffix_k + k) - newer, merged.share, newer);  // (pooling_sliding_window.3)
        store<L>(out_k + k, merged_out);
      });
    }

    if (!windowed) continue;
    clear(position(in_block), s);
    push<A>(position(in_block), position(in_block), a.logit_n[n], A(0), x, s);
    if (!ends) continue;
    for (Index r = s.window - 2; r > 0; --r) {  // the whole block is never used as a suffix
      const State<A> single = position(r);
      const A logit = fused<A>(-slope, A(s.window - 1 - r), *single.top);  // (pooling_sliding_window.8)
      push(single, position(r + 1), logit, A(0), Payloads<A>{single.average_k, s.K}, s);
    }
  }
  if (windowed) a.state[0] = A(in_block + 1 == s.window ? 0 : in_block + 1);
}

ABH_INSTANTIATE(Cpu, pooling_start, pooling_step)

}  // namespace abh
