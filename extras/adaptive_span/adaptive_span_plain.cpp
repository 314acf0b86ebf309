#include "extras/adaptive_span/adaptive_span.hpp"
#include "plain/view.hpp"

namespace abh {

template <class Device, class T>
void adaptive_span_forward(Device&, const AdaptiveSpanForward<T>& a) {
  const AdaptiveSpan<T>& in = a.in;
  const auto bias = array(a.distance_bias_np, in.distances);
  const auto base = array(in.base_np, in.distances);
  for (Index n = 0; n < in.N; ++n) {
    a.reach_n[n] = a.first_n[n] = 0;
    for (Index p = 0; p < in.distances; ++p) {
      const T mask = in.unclamped(n, p);  // (adaptive_span.1)
      bias(n, p) = T(0);
      if (!(mask > T(0))) continue;
      if (mask < T(1)) bias(n, p) = log(mask);   // (adaptive_span.2)
      if (base.first) bias(n, p) += base(n, p);  // (adaptive_span.2)
      if (mask >= T(1)) a.first_n[n] = p + 1;
      a.reach_n[n] = p + 1;  // (adaptive_span.3)
    }
  }
}

template <class Device, class T>
void adaptive_span_backward(Device&, const AdaptiveSpanBackward<T>& a) {
  const AdaptiveSpan<T>& in = a.in;
  const auto d_bias = array(a.d_distance_bias_np, in.distances);
  for (Index n = 0; n < in.N; ++n) {
    for (Index p = 0; p < in.distances; ++p) {
      const T mask = in.unclamped(n, p);
      if (mask > T(0) && mask < T(1)) a.d_span_n[n] += d_bias(n, p) / (T(in.ramp) * mask);  // (adaptive_span.4)
    }
    a.d_span_n[n] += T(a.penalty / static_cast<double>(in.N));  // (adaptive_span.5)
  }
}

template <class Device, class T>
void adaptive_span_clamp(Device&, T* span_n, Accum<T>* master_n, double largest, Index N) {
  T* const exact_n = master_n ? master_n : span_n;
  for (Index n = 0; n < N; ++n) {
    if (exact_n[n] < T(0)) exact_n[n] = T(0);              // (adaptive_span.6)
    if (exact_n[n] > T(largest)) exact_n[n] = T(largest);  // (adaptive_span.6)
    span_n[n] = exact_n[n];
  }
}

ABH_INSTANTIATE(PlainDevice, adaptive_span_forward, adaptive_span_backward, adaptive_span_clamp)

}  // namespace abh
