#include "extras/leap/leap_logits.hpp"
#include "plain/view.hpp"

namespace abh {

template <class Device, class T>
void leap_logits_forward(Device&, const LeapLogitsForward<T>& a) {
  using A = Accum<T>;
  const auto& in = a.in;
  // Logits are stored by head, (B, N, C), because pooling runs along the positions of one head. Focus and keys are
  // stored by row.
  const auto logit = array(a.logit_bnc, in.N, in.C);
  const auto focus = heads(in.focus_bch, in.stride, in.C, in.N, in.K),
             key = heads(in.key_bch, in.stride, in.C, in.N, in.K);
  for (Index b = 0; b < in.B; ++b) {
    for (Index n = 0; n < in.N; ++n) {
      for (Index c = 0; c < in.C; ++c) {
        A sum = A(0);
        for (Index k = 0; k < in.K; ++k) sum += focus(b, c, n, k) * key(b, c, n, k);
        const A score = A(in.scale) * sum;  // (leap_logits.1)
        const bool bent = in.form == FocusForm::elu && score > A(0);
        logit(b, n, c) = bent ? log1p(score) : score;  // (leap_logits.2)
      }
    }
  }
}

template <class Device, class T>
void leap_logits_backward(Device&, const LeapLogitsBackward<T>& a) {
  using A = Accum<T>;
  const auto& in = a.in;
  const auto d_focus = heads(a.d_focus_bch, a.d_stride, in.C, in.N, in.K);
  const auto d_key = heads(a.d_key_bch, a.d_stride, in.C, in.N, in.K);
  const auto d_logit = array(a.d_logit_bnc, in.N, in.C), logit = array(a.logit_bnc, in.N, in.C);
  const auto focus = heads(in.focus_bch, in.stride, in.C, in.N, in.K),
             key = heads(in.key_bch, in.stride, in.C, in.N, in.K);
  for (Index b = 0; b < in.B; ++b) {
    for (Index n = 0; n < in.N; ++n) {
      for (Index c = 0; c < in.C; ++c) {
        // The logarithm is positive if and only if the score is positive.
        const bool bent = in.form == FocusForm::elu && logit(b, n, c) > A(0);
        const A d_score = bent ? d_logit(b, n, c) * exp(-logit(b, n, c)) : d_logit(b, n, c);  // (leap_logits.3)
        const A scaled = A(in.scale) * d_score;
        for (Index k = 0; k < in.K; ++k) {
          d_focus(b, c, n, k) = scaled * key(b, c, n, k);   // (leap_logits.4)
          d_key(b, c, n, k) += scaled * focus(b, c, n, k);  // (leap_logits.5)
        }
      }
    }
  }
}

ABH_INSTANTIATE(PlainDevice, leap_logits_forward, leap_logits_backward)

}  // namespace abh
