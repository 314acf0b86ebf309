#include "cpu/lanes.hpp"
#include "cpu/math.hpp"
#include "extras/leap/leap_logits.hpp"

namespace abh {

namespace {

constexpr Index rows_per_task = 32;

}  // namespace

template <class Device, class T>
void leap_logits_forward(Device& device, const LeapLogitsForward<T>& a) {
  using A = Accum<T>;
  const auto& in = a.in;
  const Index C = in.C, N = in.N, K = in.K;
  const Index stride = stride_or(in.stride, N * K);
  const A scale = A(in.scale);
  const bool elu = in.form == FocusForm::elu;
  parallel_rows(device, in.B * C, rows_per_task, [&](Index bc) {
    Accum<T>* logit = a.logit_bnc + bc / C * N * C + bc % C;  // of head 0; the next head's is C elements further
    for (Index n = 0; n < N; ++n) {
      const T* focus_k = in.focus_bch + bc * stride + n * K;
      const T* key_k = in.key_bch + bc * stride + n * K;
      RowSum<T> sum;
      for_terms<T>(K, [&]<class L>(Index k) { sum.add_product(load<L>(focus_k + k), load<L>(key_k + k)); });
      const A score = sum.total() * scale;                               // (leap_logits.1)
      logit[n * C] = elu && score > A(0) ? log_one_plus(score) : score;  // (leap_logits.2)
    }
  });
}

template <class Device, class T>
void leap_logits_backward(Device& device, const LeapLogitsBackward<T>& a) {
  using A = Accum<T>;
  const auto& in = a.in;
  const Index C = in.C, N = in.N, K = in.K;
  const Index stride = stride_or(in.stride, N * K), d_stride = stride_or(a.d_stride, N * K);
  const A scale = A(in.scale);
  const bool elu = in.form == FocusForm::elu;
  parallel_rows(device, in.B * C, rows_per_task, [&](Index bc) {
    const Index first_head = bc / C * N * C + bc % C;  // the next head's logit is C elements further
    for (Index n = 0; n < N; ++n) {
      const A logit = a.logit_bnc[first_head + n * C], d_logit = a.d_logit_bnc[first_head + n * C];
      const A d_score = elu && logit > A(0) ? d_logit * exponential<A>(-logit) : d_logit;  // (leap_logits.3)
      const A scaled = d_score * scale;
      const T* focus_k = in.focus_bch + bc * stride + n * K;
      const T* key_k = in.key_bch + bc * stride + n * K;
      T* d_focus_k = a.d_focus_bch + bc * d_stride + n * K;
      T* d_key_k = a.d_key_bch + bc * d_stride + n * K;
      for_lanes<T>(K, [=]<class L>(Index k) {
        store<L>(d_focus_k + k, load<L>(key_k + k) * scaled);                                 // (leap_logits.4)
        store<L>(d_key_k + k, fused<L>(load<L>(focus_k + k), scaled, load<L>(d_key_k + k)));  // (leap_logits.5)
      });
    }
  });
}

ABH_INSTANTIATE(Cpu, leap_logits_forward, leap_logits_backward)

}  // namespace abh
