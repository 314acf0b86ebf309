#pragma once

#include "cases/case.hpp"
#include "extras/adaptive_span/adaptive_span.hpp"

namespace abh {

// distance_bias_np = adaptive_span(span_n). The device writes reach_n and first_n.
struct AdaptiveSpanCase {
  Index N, distances;
  double ramp;
  double largest_span = 1;  // standard deviation of the spans to try
  bool has_base = false;
  double penalty = 0;
  Index *reach_n, *first_n;

  std::vector<TensorSpec> inputs() const {
    std::vector<TensorSpec> specs = {weight("span_n", {N}, largest_span / 3, largest_span)};
    if (has_base) specs.push_back(constant("base_np", {N, distances}));
    return specs;
  }
  std::vector<TensorSpec> outputs() const { return {statistic("distance_bias_np", {N, distances})}; }

  template <class Device, class Arrays, class T = typename Arrays::Number>
  void forward(Device& device, Arrays& a) const {
    adaptive_span_forward<Device, T>(
        device, {.distance_bias_np = a.out[0].data(), .reach_n = reach_n, .first_n = first_n, .in = inputs_of<T>(a)});
  }
  template <class Device, class Arrays, class T = typename Arrays::Number>
  void backward(Device& device, Arrays& a) const {
    adaptive_span_backward<Device, T>(device, {.d_span_n = a.d_in[0].data(),
                                               .d_distance_bias_np = a.d_out[0].data(),
                                               .penalty = penalty,
                                               .in = inputs_of<T>(a)});
  }

 private:
  template <class T, class Arrays>
  AdaptiveSpan<T> inputs_of(Arrays& a) const {
    AdaptiveSpan<T> in{.span_n = a.in[0].data(), .ramp = ramp, .N = N, .distances = distances};
    if (has_base) in.base_np = a.in[1].data();
    return in;
  }
};

}  // namespace abh
