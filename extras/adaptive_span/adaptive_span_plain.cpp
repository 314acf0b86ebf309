#include "extras/adaptive_span/adaptive_span.hpp"
#include "plain/view.hpp"

namespace abh {

template <class Device, class T>
void adaptive_span_forward(Device&, const AdaptiveSpanForward<T>& a) {
  using A = Accum<T>;
  const AdaptiveSpan<T>& in = a.in;
  const auto bias = array(a.distance_bias_np, in.distances);
  const auto base = array(in.base_np, in.distances);
  for (Index n = 0; n < in.N; ++n) {
    a.reach_n[n] = a.first_n[n] = 0;
    for (Index p = 0; p < in.distances; ++p) {
      const A mask = in.unclamped(n, p);  // (adaptive_span.1)
      bias(n, p) = A(0);
      if (!(mask > A(0))) continue;
      if (mask < A(1)) bias(n, p) = log(mask);   // (adaptive_span.2)
      if (base.first) bias(n, p) += base(n, p);  // (adaptive_span.2)
      if (mask >= A(1)) a.first_n[n] = p + 1;
      a.reach_n[n] = p + 1;  // (adaptive_span.3)
    }
  }
}

template <class Device, class T>
void adaptive_span_backward(Device&, const AdaptiveSpanBackward<T>& a) {
  using A = Accum<T>;
  const AdaptiveSpan<T>& in = a.in;
  const auto d_bias = array(a.d_distance_bias_np, in.distances);
  for (Index n = 0; n < in.N; ++n) {
    for (Index p = 0; p < in.distances; ++p) {
      const A mask = in.unclamped(n, p);
      if (mask > A(0) && mask < A(1)) a.d_span_n[n] += d_bias(n, p) / (A(in.ramp) * mask);  // (adaptive_span.4)
    }
    a.d_span_n[n] += A(a.penalty / static_cast<double>(in.N));  // (adaptive_span.5)
  }
}

template <class Device, class T>
void adaptive_span_clamp(Device&, T* span_n, Accum<T>* master_n, double largest, Index N) {
  using A = Accum<T>;
  for (Index n = 0; n < N; ++n) {
    A exact = master_n ? master_n[n] : A(span_n[n]);
    if (exact < A(0)) exact = A(0);              // (adaptive_span.6)
    if (exact > A(largest)) exact = A(largest);  // (adaptive_span.6)
    if (master_n) master_n[n] = exact;
    span_n[n] = exact;
  }
}

ABH_INSTANTIATE(PlainDevice, adaptive_span_forward, adaptive_span_backward, adaptive_span_clamp)

}  // namespace abh
