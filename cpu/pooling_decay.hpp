#pragma once

// Pooling with decay: the scans of maxima with decreasing logits.

#include "cpu/pooling_weights.hpp"

namespace abh {

namespace {

// Decay of head n's logits per position; 0: none, with the same results as without decay.
template <class T>
T slope_of(const T* slope_n, Index n) {
  return slope_n ? slope_n[n] : T(0);
}

// running_max relative to the current position: at each position, all previous logits decrease by one slope. The
// largest logit is stored unchanged with its age, so nothing is rounded twice. It is replaced only by a logit that is
// larger by `margin`.
template <class T, class Logits>
void decayed_max(T* max_c, T* keep_c, T* add_c, const Logits& logit, T slope, T margin, Index C, Index block,
                 PoolingOrder order) {
  T top = minus_infinity<T>();
  T age = T(0);
  for_positions(C, block, order, [&](Index c, bool starts) {
    const T newcomer = logit[c];
    const T aged = starts ? minus_infinity<T>() : fused<T>(-slope, age + T(1), top);  // (pooling_decay.2)
    const bool nothing_new = newcomer == minus_infinity<T>();
    const bool stays = newcomer - margin < aged || nothing_new;
    const T most = stays ? aged : newcomer;
    top = starts || !stays ? newcomer : top;  // (pooling_decay.3)
    age = stays ? age + T(1) : T(0);          // (pooling_decay.3)
    keep_c[c] = stays ? T(0) : aged - newcomer;
    add_c[c] = nothing_new ? newcomer : newcomer - most;
    max_c[c] = most;
  });
  exponentials(keep_c, C);
  exponentials(add_c, C);
}

template <class T, class Logits>
void running_max(T* max_c, T* keep_c, T* add_c, const Logits& logit, T slope, Index C, Index block, PoolingOrder order,
                 T margin = T(0)) {
  if (slope == T(0)) {
    running_max(max_c, keep_c, add_c, logit, C, block, order);
  } else {
    decayed_max(max_c, keep_c, add_c, logit, slope, margin, C, block, order);
  }
}

}  // namespace

}  // namespace abh
