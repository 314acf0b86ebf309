#pragma once

// The pooling of one head has two sides. What is one number a position (logits, maxima, sums, weights) is computed
// first, for the whole sequence, with exponentials of neighbouring positions taken at once. Then the payload is swept
// row by row with weights that are ready: a few multiply-adds an element, as fast as memory delivers. Here stands what
// all poolings share: over all positions so far (pooling.cpp, pooling_decay.cpp), over a window
// (pooling_sliding_window.cpp), over all positions (pooling_bidirectional.cpp), step by step (pooling_step.cpp).

#include "cpu/lanes.hpp"
#include "cpu/math.hpp"
#include "layers/pooling.hpp"

namespace abh {

namespace {

template <class T>
T minus_infinity() {
  return T(-__builtin_inf());
}

// Positions in a block: the window, or the whole sequence for a global one.
inline Index block_of(const PoolingShape& s) { return s.window > 0 && s.window < s.C ? s.window : s.C; }

// The logits of one head as pooling sees them.
template <class T>
struct MaskedLogits {
  const T* logit_c;
  const Token* mask_c;  // null: all real
  T operator[](Index c) const { return mask_c && mask_c[c] == 0 ? minus_infinity<T>() : logit_c[c]; }
};
template <class T>
MaskedLogits<T> masked_logits(const T* logit_bnc, const Token* mask_bc, const PoolingShape& s, Index bn) {
  return {logit_bnc + bn * s.C, mask_bc ? mask_bc + bn / s.N * s.C : nullptr};
}

// Scratch memory, `size` numbers a slot.
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

// Numbers of one head, one a position.

enum class PoolingOrder { up, down };

// 1 for a sum of nothing, so that a share of it is 0/1 and not 0/0: no branch among the lanes.
template <class L>
L nonzero(const L& sum) {
  return sum == ScalarOf<L>(0) ? splat<L>(ScalarOf<L>(1)) : sum;
}

// Calls body(c, starts) for all positions, block by block, within a block in this order; starts: the first of a block.
template <class Body>
inline __attribute__((always_inline)) void for_positions(Index C, Index block, PoolingOrder order, const Body& body) {
  for (Index begin = 0; begin < C; begin += block) {
    const Index count = min_of(block, C - begin);
    for (Index t = 0; t < count; ++t) body(order == PoolingOrder::up ? begin + t : begin + count - 1 - t, t == 0);
  }
}

// max_c[c]: the largest logit of the block so far. keep_c and add_c: what a sum relative to the maximum before, and the
// newcomer, are multiplied with; one of the two is 1. keep_c is 1 where nothing is added; a block's first is not used.
//
// Only the walk of the maxima is one position after the other. The exponentials, which cost most, come after it, for
// neighbouring positions at once.
template <class T, class Logits>
void running_max(T* max_c, T* keep_c, T* add_c, const Logits& logit, Index C, Index block, PoolingOrder order) {
  T most = minus_infinity<T>();
  for_positions(C, block, order, [&](Index c, bool starts) {
    add_c[c] = logit[c];
    most = starts ? add_c[c] : larger<T>(most, add_c[c]);  // (pooling.2) (pooling_sliding_window.4)
    max_c[c] = most;
  });
  // -infinity less -infinity is never used: a newcomer that counts makes the maximum finite.
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

// Replaces n numbers by e to their power.
template <class T>
void exponentials(T* x, Index n) {
  for_lanes<T>(n, [&]<class L>(Index i) { store<L>(x + i, exponential<L>(load<L>(x + i))); });
}

// sum_c, relative to the running maximum, and the share alpha_c of the newcomer in it: a walk of multiply-adds, then
// the divisions for neighbouring positions at once.
// first_rest: what rounding left of the logit of the first position. Returns what it left of the last sum.
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

// The shares of all positions of a head once more, from what was saved.
template <class T>
void shares_again(T* alpha_c, const MaskedLogits<T>& logit, const T* max_c, const T* sum_c, Index C) {
  for (Index c = 0; c < C; ++c) alpha_c[c] = logit[c];
  for_lanes<T>(C, [=]<class L>(Index c) {
    const L newcomer = load<L>(alpha_c + c);
    const L exponent = newcomer == minus_infinity<T>() ? newcomer : newcomer - load<L>(max_c + c);
    store<L>(alpha_c + c, exponential<L>(exponent) / nonzero<L>(load<L>(sum_c + c)));  // (pooling.4)
  });
}

// Rows of the payload.

// out = starts ? alpha x : state + alpha (x - state). out may be state or x; state is not read at a start. A difference
// scaled, not beta state + alpha x: of equal numbers it is 0, and a constant payload stays constant to the last bit.
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

// Over many positions an average moves by ever smaller steps, in the end by less than its last digit. Beyond
// many_positions the code therefore averages in stretches. The anchor is the average at the end of the stretch before.
// A separate number, with its own digits, holds the move since the anchor. Growing sums work the same way.
constexpr Index many_positions = 1024;
constexpr Index stretch = 256;

// A stretch begins: the average so far is the anchor, and what has moved is what rounding left of it. goes_on: the
// stretch before had an anchor, too; else nothing is known of that.
template <class T>
void begin_average(T* anchor, T* moved, const T* state, bool goes_on, Index size) {
  for_lanes<T>(size, [=]<class L>(Index k) {
    const L average = load<L>(state + k);
    store<L>(moved + k, goes_on ? load<L>(moved + k) - (average - load<L>(anchor + k)) : splat<L>(T(0)));
    store<L>(anchor + k, average);
  });
}

// The averages of `count` neighbouring positions: out = anchor + moved. Of equal numbers nothing moves here, too.
template <int count, class T>
void average_block(T* out, Index out_stride, const T* anchor, T* moved, const T* alpha_c, const T* x, Index x_stride,
                   Index size) {
  for_lanes<T>(size, [=]<class L>(Index k) {
    const L from = load<L>(anchor + k);
    L by = load<L>(moved + k);
    unrolled<count>([&](int i) {
      by = fused<L>((load<L>(x + i * x_stride + k) - from) - by, alpha_c[i], by);  // (pooling.5), less anchor
      store<L>(out + i * out_stride + k, from + by);
    });
    store<L>(moved + k, by);
  });
}

}  // namespace

}  // namespace abh
