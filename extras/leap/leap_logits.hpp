#pragma once

#include "base/types.hpp"

namespace abh {

// The logits of leap: one number a position and head, which says how much the position matters to whoever comes later.
// The position asks itself: its focus is compared with its own key, where attention would compare a query with the key
// of another position. Wu, Wu, Qi, Huang, Xie, "Fastformer", 2021, takes a learned vector for the focus; LEAP
// (github.com/mtanghu/LEAP) makes it of the position. Derivation: extras/leap/leap_logits.md.
//
//   score_bnc = scale sum_k focus_bcnk key_bcnk                                                  (leap_logits.1)
//   logit_bnc = score_bnc {log(1 + score_bnc) | elu, score_bnc > 0}                              (leap_logits.2)
//
// A weight e^logit is then e^score, or, with elu, e^score where the score is negative and 1 + score where it is not.
//
// Backward. 1 + score is e^logit: only the logit is saved.
//
//   d_score_bnc   = d_logit_bnc {d_logit_bnc e^-logit_bnc | elu, logit_bnc > 0}                  (leap_logits.3)
//   d_focus_bcnk  = scale d_score_bnc key_bcnk                                                   (leap_logits.4)
//   d_key_bcnk   += scale d_score_bnc focus_bcnk                                                 (leap_logits.5)

// The function that makes a logit of a score.
enum class FocusForm { elu, exp };

// Rows of focus and of keys are N heads of K channels side by side, h = n K + k; a stride is the distance between two
// consecutive rows of either (0: N K), so that both may be slices of wider rows.
template <class T>
struct LeapLogitsInputs {
  const T* focus_bch;
  const T* key_bch;
  Index stride = 0;
  FocusForm form = FocusForm::elu;
  double scale = 1;
  Index B, C, N, K;
};

// 2 flops an element of the keys; focus and keys are read once.
template <class T>
struct LeapLogitsForward {
  Accum<T>* logit_bnc;
  LeapLogitsInputs<T> in;
};
template <class Device, class T>
void leap_logits_forward(Device&, const LeapLogitsForward<T>&);

// d_focus is overwritten; d_key, where the gradient of the keys' average already stands, is added to. 3 flops an
// element of the keys; reads focus, key and d_key, writes d_focus and d_key.
template <class T>
struct LeapLogitsBackward {
  T* d_focus_bch;  // overwritten
  T* d_key_bch;    // added to
  Index d_stride = 0;
  const Accum<T>* d_logit_bnc;
  const Accum<T>* logit_bnc;
  LeapLogitsInputs<T> in;
};
template <class Device, class T>
void leap_logits_backward(Device&, const LeapLogitsBackward<T>&);

}  // namespace abh
