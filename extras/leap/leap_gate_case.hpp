#pragma once

#include "cases/case.hpp"
#include "extras/leap/leap_gate.hpp"

namespace abh {

// out_bch = leap_gate(query_bch, pooled_bcq, max_bnc, sum_bnc). The gradient of max_bnc is that of lse = max + log sum,
// because the sums are inputs.
struct LeapGateCase {
  Index B, C, N, K;
  double scale = 1;
  double max = 0;              // mean of the maxima
  Index gap = 0, d_gap = gap;  // between rows of queries, and of their gradient

  std::vector<TensorSpec> inputs() const {
    TensorSpec maxima = statistic("max_bnc", {B, N, C}), sums = constant("sum_bnc", {B, N, C});
    maxima.offset = max;
    sums.offset = 2;
    sums.scale = 0.1;
    return {spread(activation("query_bch", {B, C, N * K}), gap, d_gap), activation("pooled_bcq", {B, C, 2 * N * K}),
            maxima, sums};
  }
  std::vector<TensorSpec> outputs() const { return {activation("out_bch", {B, C, N * K})}; }

  template <class Device, class Arrays, class T = typename Arrays::Number>
  void forward(Device& device, Arrays& a) const {
    leap_gate_forward<Device, T>(device, {.out_bch = a.out[0].data(), .in = inputs_of<T>(a)});
  }
  template <class Device, class Arrays, class T = typename Arrays::Number>
  void backward(Device& device, Arrays& a) const {
    leap_gate_backward<Device, T>(device, {.d_query_bch = a.d_in[0].data(),
                                           .d_query_stride = stride_with(N * K, d_gap),
                                           .d_pooled_bcq = a.d_in[1].data(),
                                           .d_lse_bnc = a.d_in[2].data(),
                                           .d_out_bch = a.d_out[0].data(),
                                           .in = inputs_of<T>(a)});
  }

 private:
  template <class T, class Arrays>
  LeapGateInputs<T> inputs_of(Arrays& a) const {
    return {.query_bch = a.in[0].data(),
            .query_stride = stride_with(N * K, gap),
            .pooled_bcq = a.in[1].data(),
            .max_bnc = a.in[2].data(),
            .sum_bnc = a.in[3].data(),
            .scale = scale,
            .B = B,
            .C = C,
            .N = N,
            .K = K};
  }
};

}  // namespace abh
