#pragma once

// Pooling of one head has two parts. First, the numbers per position (logits, maxima, sums, weights) are computed for
// the whole sequence, with SIMD vectors of exponentials. Then a loop over the rows of values applies the weights: a few
// multiply-adds per element, memory-bound. This file is shared by all poolings: over all positions so far (pooling.cpp,
// pooling_decay.cpp), over a window (pooling_sliding_window.cpp), over all positions (pooling_bidirectional.cpp), and
// in inference (pooling_step.cpp).

#include "cpu/lanes.hpp"
#include "cpu/math.hpp"
#include "layers/pooling.hpp"

namespace abh {

namespace {

template <class T>
T minus_infinity() {
  return T(-__builtin_inf());
}

// Positions per block: the window, or the whole sequence without a window.
inline Index block_of(const PoolingShape& s) { return s.window > 0 && s.window < s.C ? s.window : s.C; }

// Masked logits of one head.
template <class T>
struct MaskedLogits {
  const T* logit_c;
  const Token* mask_c;  // null: no position is masked
  T operator[](Index c) const { return mask_c && mask_c[c] == 0 ? minus_infinity<T>() : logit_c[c]; }
};
template <class T>
MaskedLogits<T> masked_logits(const T* logit_bnc, const Token* mask_bc, const PoolingShape& s, Index bn) {
  return {logit_bnc + bn * s.C, mask_bc ? mask_bc + bn / s.N * s.C : nullptr};
}

// Scratch memory, `size` numbers per slot.
template <class T>
struct PerSlot {
  T* memory;
  Index size;
  T* operator[](Index slot) const { return memory + slot * size; }
};
template <class T, class Scope>
PerSlot<T> per_slot(Scope& scratch, Index slots, Index size) {
  const Index rounded = blocks_of(size, 16) * 16;  // slots share no cache line
  return {scratch.template take<T>(slots * rounded), rounded};
}

// Numbers of one head, one per position.

enum class PoolingOrder { up, down };

// Replaces a sum of 0 by 1, so that its share is 0/1, not 0/0, without a branch.
template <class L>
L nonzero(const L& sum) {
  return sum == ScalarOf<L>(0) ? splat<L>(ScalarOf<L>(1)) : sum;
}

// Calls body(c, starts) for all positions, block by block, in this order within a block; starts: true at the first.
template <class Body>
inline __attribute__((always_inline)) void for_positions(Index C, Index block, PoolingOrder order, const Body& body) {
  for (Index begin = 0; begin < C; begin += block) {
    const Index count = min_of(block, C - begin);
    for (Index t = 0; t < count; ++t) body(order == PoolingOrder::up ? begin + t : begin + count - 1 - t, t == 0);
  }
}

// max_c[c]: largest logit of the block up to c. keep_c and add_c: factors of the sum relative to the previous maximum
// and of the new position; one of the two is 1. keep_c is 1 if nothing is added; that of a block's first position is
// not used.
//
// Only the scan of maxima is sequential. The exponentials, which cost most, are computed afterwards in SIMD vectors of
// positions.
template <class T, class Logits>
void running_max(T* max_c, T* keep_c, T* add_c, const Logits& logit, Index C, Index block, PoolingOrder order) {
  T most = minus_infinity<T>();
  for_positions(C, block, order, [&](Index c, bool starts) {
    add_c[c] = logit[c];
    most = starts ? add_c[c] : larger<T>(most, add_c[c]);  // (pooling.2) (pooling_sliding_window.4)
    max_c[c] = most;
  });
  // -infinity - (-infinity) is never used: an unmasked position makes the maximum finite.
  const Index before = order == PoolingOrder::up ? -1 : 1;
  const Index first = order == PoolingOrder::up ? 1 : 0;
  for_lanes<T>(C - 1, [&]<class L>(Index i) {
    const Index c = first + i;
    const L change = load<L>(max_c + c + before) - load<L>(max_c + c);
    store<L>(keep_c + c, exponential<L>(load<L>(add_c + c) == minus_infinity<T>() ? L{} : change));
  });
  for_lanes<T>(C, [&]<class L>(Index c) {
    const L newcomer = load<L>(add_c + c);
    store<L>(add_c + c, exponential<L>(newcomer == minus_infinity<T>() ? newcomer : newcomer - load<L>(max_c + c)));
  });
}

// Replaces each of n numbers by its exponential.
template <class T>
void exponentials(T* x, Index n) {
  for_lanes<T>(n, [&]<class L>(Index i) { store<L>(x + i, exponential<L>(load<L>(x + i))); });
}

// sum_c, relative to the running maximum, and the share alpha_c of the new position: a scan of multiply-adds, then the
// divisions in SIMD vectors of positions. first_rest: rounding error of the logit of the first position. Returns the
// rounding error of the last sum.
template <class T>
T running_sum(T* sum_c, T* alpha_c, const T* keep_c, const T* add_c, Index C, Index block, PoolingOrder order,
              T first_rest = T(0)) {
  using S = Extended<T>;
  S sum = S(0), rest = S(first_rest);
  for_positions(C, block, order, [&](Index c, bool starts) {
    sum = starts ? S(add_c[c]) * (S(1) + rest) : fused<S>(sum, S(keep_c[c]), S(add_c[c]));  // (pooling.3)
    rest = S(0);
    sum_c[c] = T(sum);
  });
  for_lanes<T>(C, [&]<class L>(Index c) {
    store<L>(alpha_c + c, load<L>(add_c + c) / nonzero<L>(load<L>(sum_c + c)));  // (pooling.4)
  });
  return T(sum - S(T(sum)));
}

// Recomputes the shares of all positions of a head from saved arrays.
template <class T>
void shares_again(T* alpha_c, const MaskedLogits<T>& logit, const T* max_c, const T* sum_c, Index C) {
  for (Index c = 0; c < C; ++c) alpha_c[c] = logit[c];
  for_lanes<T>(C, [=]<class L>(Index c) {
    const L newcomer = load<L>(alpha_c + c);
    const L exponent = newcomer == minus_infinity<T>() ? newcomer : newcomer - load<L>(max_c + c);
    store<L>(alpha_c + c, exponential<L>(exponent) / nonzero<L>(load<L>(sum_c + c)));  // (pooling.4)
  });
}

// Rows of values.

// out = starts ? alpha x : state + alpha (x - state). out may be state or x; state is not read at a start. The
// difference form, not beta state + alpha x: for equal numbers the difference is 0, so constant values stay bitwise
// constant.
template <class T>
void average_row(T* out, const T* state, bool starts, T alpha, const T* x, Index size) {
  for_lanes<T>(size, [&]<class L>(Index k) {
    if (starts) {
      store<L>(out + k, load<L>(x + k) * alpha);
    } else {
      const L before = load<L>(state + k);
      store<L>(out + k, fused<L>(load<L>(x + k) - before, alpha, before));  // (pooling.5)
    }
  });
}

// Over many positions an average changes by ever smaller steps, in the end by less than its last digit. Beyond
// many_positions the code therefore uses stretches. The anchor is the average at the end of the previous stretch. A
// separate number holds the change since the anchor with full precision. Long sums use the same method.
constexpr Index many_positions = 1024;
constexpr Index stretch = 256;

// Starts a stretch: the anchor is the average so far, and the change is the rounding error of the anchor. goes_on: true
// if the previous stretch had an anchor; otherwise this error is unknown.
template <class T>
void begin_average(T* anchor, T* moved, const T* state, bool goes_on, Index size) {
  for_lanes<T>(size, [=]<class L>(Index k) {
    const L average = load<L>(state + k);
    store<L>(moved + k, goes_on ? load<L>(moved + k) - (average - load<L>(anchor + k)) : splat<L>(T(0)));
    store<L>(anchor + k, average);
  });
}

// Averages of `count` consecutive positions: out = anchor + change. For equal numbers the change is 0 here too.
template <int count, class T>
void average_block(T* out, Index out_stride, const T* anchor, T* moved, const T* alpha_c, const T* x, Index x_stride,
                   Index size) {
  for_lanes<T>(size, [=]<class L>(Index k) {
    const L from = load<L>(anchor + k);
    L by = load<L>(moved + k);
    unrolled<count>([&](int i) {
      by = fused<L>((load<L>(x + i * x_stride + k) - from) - by, alpha_c[i], by);  // (pooling.5), minus anchor
      store<L>(out + i * out_stride + k, from + by);
    });
    store<L>(moved + k, by);
  });
}

}  // namespace

}  // namespace abh
