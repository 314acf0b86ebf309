#pragma once

#include "cases/case.hpp"
#include "layers/pooling_logits.hpp"

namespace abh {

// logit_bnc = x_bch pool_nk / sqrt(K). The gradient of x is added to.
struct PoolingLogitsCase {
  Index B, C, N, K;
  Index gap = 0, d_gap = gap;  // between rows of x, and of its gradient

  std::vector<TensorSpec> inputs() const {
    TensorSpec x = spread(activation("x_bch", {B, C, N * K}), gap, d_gap);
    x.adds = true;
    return {x, weight("pool_nk", {N, K})};
  }
  std::vector<TensorSpec> outputs() const { return {statistic("logit_bnc", {B, N, C})}; }

  template <class Device, class Arrays, class T = typename Arrays::Number>
  void forward(Device& device, Arrays& a) const {
    pooling_logits_forward<Device, T>(device, {.logit_bnc = a.out[0].data(), .in = inputs_of<T>(a)});
  }
  template <class Device, class Arrays, class T = typename Arrays::Number>
  void backward(Device& device, Arrays& a) const {
    pooling_logits_backward<Device, T>(device, {.d_x_bch = a.d_in[0].data(),
                                                .d_x_stride = stride_with(N * K, d_gap),
                                                .d_pool_nk = a.d_in[1].data(),
                                                .d_logit_bnc = a.d_out[0].data(),
                                                .in = inputs_of<T>(a)});
  }

 private:
  template <class T, class Arrays>
  PoolingLogitsInputs<T> inputs_of(Arrays& a) const {
    return {.x_bch = a.in[0].data(),
            .x_stride = stride_with(N * K, gap),
            .pool_nk = a.in[1].data(),
            .B = B,
            .C = C,
            .N = N,
            .K = K};
  }
};

}  // namespace abh
