#include "cpu/pooling_weights.hpp"

namespace abh {

// Pooling, step by step.

namespace {

// The state of one head over some positions, in memory: max, sum, K averages.
template <class T>
struct Triple {
  T* max;
  T* sum;
  T* average_k;
};
template <class T>
Triple<T> triple_at(T* memory) {
  return {memory, memory + 1, memory + 2};
}

// to = from and one more position. to may be from; x_k may be to.average_k.
template <class T>
void push(const Triple<T>& to, const Triple<T>& from, T logit, const T* x_k, Index K) {
  const bool starts = *from.sum == T(0);
  const bool nothing_new = logit == minus_infinity<T>();
  const T most = larger<T>(*from.max, logit);  // (pooling.2)
  const T keep = starts || nothing_new ? T(1) : exponential<T>(*from.max - most);
  const T add = nothing_new ? T(0) : exponential<T>(logit - most);
  const T sum = *from.sum * keep + add;                                                       // (pooling.3)
  average_row(to.average_k, from.average_k, starts, nothing_new ? T(0) : add / sum, x_k, K);  // (pooling.4)
  *to.max = most;
  *to.sum = sum;
}

// What a merge gives the older of two triples.
template <class T>
T share_of_older(const Triple<T>& older, const Triple<T>& newer) {
  if (*older.sum == T(0)) return T(0);
  if (*newer.sum == T(0)) return T(1);
  const T most = larger<T>(*older.max, *newer.max);
  const T old_sum = *older.sum * exponential<T>(*older.max - most);
  return old_sum / (old_sum + *newer.sum * exponential<T>(*newer.max - most));  // (pooling.6) (pooling.7)
}

template <class T>
void clear(const Triple<T>& triple, Index K) {
  *triple.max = minus_infinity<T>();
  *triple.sum = T(0);
  for (Index k = 0; k < K; ++k) triple.average_k[k] = T(0);
}

}  // namespace

// State: the prefix triple of every head; with a window, before it the positions in the block so far, and behind it one
// triple a position of the block, for every head. Position r of the block before is no longer needed when the block
// reaches r, so one array holds both: up to r single positions of this block, after r the suffixes of the block before.
template <class Device, class T>
void pooling_start(Device&, Accum<T>* state, const PoolingShape& s, bool) {
  using A = Accum<T>;
  A* triples = state;
  if (s.window > 0) {
    state[0] = A(0);
    triples = state + 1;
  }
  for (Index i = 0; i < (s.window > 0 ? s.window + 1 : 1) * s.N; ++i) clear(triple_at(triples + i * (s.K + 2)), s.K);
}

template <class Device, class T>
void pooling_step(Device&, T* out_h, Accum<T>* state, const Accum<T>* logit_n, const T* x_h, const PoolingShape& s,
                  const Accum<T>*) {
  using A = Accum<T>;
  const bool windowed = s.window > 0;
  const Index in_block = windowed ? static_cast<Index>(static_cast<double>(state[0])) : 0;
  A* prefixes = windowed ? state + 1 : state;
  for (Index n = 0; n < s.N; ++n) {
    const auto position = [&](Index r) { return triple_at(prefixes + ((r + 1) * s.N + n) * (s.K + 2)); };
    const Triple<A> prefix = triple_at(prefixes + n * (s.K + 2));
    const T* x_k = x_h + n * s.K;
    T* out_k = out_h + n * s.K;
    if (windowed && in_block == 0) clear(prefix, s.K);
    push(prefix, prefix, logit_n[n], x_k, s.K);

    // The suffix of the block before that fills up the window; none at the end of a block, where the block is the
    // window.
    const bool ends = in_block + 1 == s.window;
    const A share = windowed && !ends ? share_of_older(position(in_block + 1), prefix) : A(0);
    const A* suffix_k = windowed && !ends ? position(in_block + 1).average_k : prefix.average_k;
    for_lanes<T>(s.K, [&]<class L>(Index k) {
      const L newer = load<L>(prefix.average_k + k);
      store<L>(out_k + k, newer + (load<L>(suffix_k + k) - newer) * share);  // (pooling.8)
    });

    if (!windowed) continue;
    clear(position(in_block), s.K);
    push(position(in_block), position(in_block), logit_n[n], x_k, s.K);
    if (!ends) continue;
    for (Index r = s.window - 2; r > 0; --r) {  // the whole block is never anybody's suffix
      const Triple<A> single = position(r);
      push(single, position(r + 1), *single.max, single.average_k, s.K);
    }
  }
  if (windowed) state[0] = A(in_block + 1 == s.window ? 0 : in_block + 1);
}

#define INSTANTIATE(T)                                            \
  template decltype(pooling_start<Cpu, T>) pooling_start<Cpu, T>; \
  template decltype(pooling_step<Cpu, T>) pooling_step<Cpu, T>;
ABH_FOR_EACH_SCALAR(INSTANTIATE)

}  // namespace abh
