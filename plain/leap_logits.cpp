#include "layers/leap_logits.hpp"

#include "plain/view.hpp"

namespace abh {

template <class Device, class T>
void leap_logits_forward(Device&, const LeapLogitsForward<T>& a) {
  // The logits lie head by head, (B, N, C): pooling walks along the positions of one head. Focus and keys lie row by
  // row.
  const auto logit = array(a.logit_bnc, a.N, a.C);
  const auto focus = heads(a.focus_bch, a.stride, a.C, a.N, a.K), key = heads(a.key_bch, a.stride, a.C, a.N, a.K);
  for (Index b = 0; b < a.B; ++b) {
    for (Index n = 0; n < a.N; ++n) {
      for (Index c = 0; c < a.C; ++c) {
        T sum = T(0);
        for (Index k = 0; k < a.K; ++k) sum += focus(b, c, n, k) * key(b, c, n, k);
        const T score = T(a.scale) * sum;  // (leap_logits.1)
        const bool bent = a.form == FocusForm::elu && score > T(0);
        logit(b, n, c) = bent ? log1p(score) : score;  // (leap_logits.2)
      }
    }
  }
}

template <class Device, class T>
void leap_logits_backward(Device&, const LeapLogitsBackward<T>& a) {
  const auto d_focus = heads(a.d_focus_bch, a.d_stride, a.C, a.N, a.K);
  const auto d_key = heads(a.d_key_bch, a.d_stride, a.C, a.N, a.K);
  const auto d_logit = array(a.d_logit_bnc, a.N, a.C), logit = array(a.logit_bnc, a.N, a.C);
  const auto focus = heads(a.focus_bch, a.stride, a.C, a.N, a.K), key = heads(a.key_bch, a.stride, a.C, a.N, a.K);
  for (Index b = 0; b < a.B; ++b) {
    for (Index n = 0; n < a.N; ++n) {
      for (Index c = 0; c < a.C; ++c) {
        // The logarithm is positive where the score is.
        const bool bent = a.form == FocusForm::elu && logit(b, n, c) > T(0);
        const T d_score = bent ? d_logit(b, n, c) * exp(-logit(b, n, c)) : d_logit(b, n, c);  // (leap_logits.3)
        const T scaled = T(a.scale) * d_score;
        for (Index k = 0; k < a.K; ++k) {
          d_focus(b, c, n, k) = scaled * key(b, c, n, k);   // (leap_logits.4)
          d_key(b, c, n, k) += scaled * focus(b, c, n, k);  // (leap_logits.5)
        }
      }
    }
  }
}

#define INSTANTIATE(T)                                                                        \
  template decltype(leap_logits_forward<PlainDevice, T>) leap_logits_forward<PlainDevice, T>; \
  template decltype(leap_logits_backward<PlainDevice, T>) leap_logits_backward<PlainDevice, T>;
ABH_FOR_EACH_SCALAR(INSTANTIATE)

}  // namespace abh
