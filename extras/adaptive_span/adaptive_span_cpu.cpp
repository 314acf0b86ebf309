#include <algorithm>

#include "cpu/lanes.hpp"
#include "cpu/math.hpp"
#include "extras/adaptive_span/adaptive_span.hpp"

namespace abh {

template <class Device, class T>
void adaptive_span_forward(Device& device, const AdaptiveSpanForward<T>& a) {
  using A = Accum<T>;
  const AdaptiveSpan<T>& in = a.in;
  parallel_for(device, in.N, [&](Index n, Index) {
    // Masks decrease with distance: first those equal to 1, then those of the ramp.
    Index first = 0, reach = 0;
    A* bias_p = a.distance_bias_np + n * in.distances;
    for (; first < in.distances && in.unclamped(n, first) >= A(1); ++first) bias_p[first] = A(0);
    for (reach = first; reach < in.distances && in.unclamped(n, reach) > A(0); ++reach) {
      bias_p[reach] = in.unclamped(n, reach);  // (adaptive_span.1)
    }
    for (Index p = reach; p < in.distances; ++p) bias_p[p] = A(0);
    for_lanes<T>(reach - first,
                 [&]<class L>(Index i) { store<L>(bias_p + first + i, natural_log<L>(load<L>(bias_p + first + i))); });
    const A* base_p = in.base_np ? in.base_np + n * in.distances : nullptr;
    for_lanes<T>(base_p ? reach : 0, [&]<class L>(Index p) {
      store<L>(bias_p + p, load<L>(bias_p + p) + load<L>(base_p + p));  // (adaptive_span.2)
    });
    a.reach_n[n] = reach;  // (adaptive_span.3)
    a.first_n[n] = first;
  });
}

template <class Device, class T>
void adaptive_span_backward(Device& device, const AdaptiveSpanBackward<T>& a) {
  using A = Accum<T>;
  const AdaptiveSpan<T>& in = a.in;
  parallel_for(device, in.N, [&](Index n, Index) {
    A d_span = A(0);
    for (Index p = 0; p < in.distances; ++p) {
      const A mask = in.unclamped(n, p);
      if (!(mask > A(0))) break;
      if (mask < A(1)) d_span += a.d_distance_bias_np[n * in.distances + p] / (A(in.ramp) * mask);  // (adaptive_span.4)
    }
    a.d_span_n[n] += d_span + A(a.penalty / static_cast<double>(in.N));  // (adaptive_span.5)
  });
}

template <class Device, class T>
void adaptive_span_clamp(Device& device, T* span_n, Accum<T>* master_n, double largest, Index N) {
  using A = Accum<T>;
  parallel_for(device, N, [&](Index n, Index) {
    const A exact = std::clamp(master_n ? master_n[n] : A(span_n[n]), A(0), A(largest));  // (adaptive_span.6)
    if (master_n) master_n[n] = exact;
    span_n[n] = exact;
  });
}

ABH_INSTANTIATE(Cpu, adaptive_span_forward, adaptive_span_backward, adaptive_span_clamp)

}  // namespace abh
