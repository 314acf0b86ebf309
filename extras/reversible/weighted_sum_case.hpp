#pragma once

#include "cases/case.hpp"
#include "extras/reversible/weighted_sum.hpp"

namespace abh {

// out = p a + q b, element by element.
struct WeightedSumCase {
  Index count;
  double p = 1, q = -1;

  std::vector<TensorSpec> inputs() const { return {activation("a", {count}), activation("b", {count})}; }
  std::vector<TensorSpec> outputs() const { return {activation("out", {count})}; }

  template <class Device, class Arrays, class T = typename Arrays::Number>
  void forward(Device& device, Arrays& a) const {
    weighted_sum_forward<Device, T>(device, a.out[0].data(), p, a.in[0].data(), q, a.in[1].data(), count);
  }
  template <class Device, class Arrays, class T = typename Arrays::Number>
  void backward(Device& device, Arrays& a) const {
    weighted_sum_backward<Device, T>(device, a.d_in[0].data(), a.d_in[1].data(), p, q, a.d_out[0].data(), count);
  }
};

}  // namespace abh
