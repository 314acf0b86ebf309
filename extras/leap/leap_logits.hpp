#pragma once

#include "base/types.hpp"

namespace abh {

// Logits of leap: one number per position and head. The focus of a position is multiplied by its own key, whereas
// attention multiplies a query by the key of another position. In Wu, Wu, Qi, Huang, Xie, "Fastformer", 2021, the focus
// is a learned vector; in LEAP (github.com/mtanghu/LEAP) it is computed from the position. Derivation:
// extras/leap/leap_logits.md.
//
//   score_bnc = scale sum_k focus_bcnk key_bcnk                                                  (leap_logits.1)
//   logit_bnc = score_bnc {log(1 + score_bnc) | elu, score_bnc > 0}                              (leap_logits.2)
//
// The weight e^logit is e^score. With elu it is e^score for negative scores and 1 + score otherwise.
//
// Backward pass. 1 + score is e^logit, so only the logit is saved.
//
//   d_score_bnc   = d_logit_bnc {d_logit_bnc e^-logit_bnc | elu, logit_bnc > 0}                  (leap_logits.3)
//   d_focus_bcnk  = scale d_score_bnc key_bcnk                                                   (leap_logits.4)
//   d_key_bcnk   += scale d_score_bnc focus_bcnk                                                 (leap_logits.5)

// Function from score to logit.
enum class FocusForm { elu, exp };

// Rows of focus and of keys are N heads of K adjacent channels, h = n K + k. A stride is the distance between two
// consecutive rows (0: N K), so both may be slices of wider rows.
template <class T>
struct LeapLogitsInputs {
  const T* focus_bch;
  const T* key_bch;
  Index stride = 0;
  FocusForm form = FocusForm::elu;
  double scale = 1;
  Index B, C, N, K;
};

// 2 flops per element of the keys; focus and keys are read once.
template <class T>
struct LeapLogitsForward {
  Accum<T>* logit_bnc;
  LeapLogitsInputs<T> in;
};
template <class Device, class T>
void leap_logits_forward(Device&, const LeapLogitsForward<T>&);

// d_focus is overwritten. d_key already holds the gradient of the averaged keys and is accumulated. 3 flops per element
// of the keys; reads focus, key and d_key, writes d_focus and d_key.
template <class T>
struct LeapLogitsBackward {
  T* d_focus_bch;  // overwritten
  T* d_key_bch;    // accumulated
  Index d_stride = 0;
  const Accum<T>* d_logit_bnc;
  const Accum<T>* logit_bnc;
  LeapLogitsInputs<T> in;
};
template <class Device, class T>
void leap_logits_backward(Device&, const LeapLogitsBackward<T>&);

}  // namespace abh
