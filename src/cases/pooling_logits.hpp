#pragma once

#include "cases/case.hpp"
#include "layers/pooling_logits.hpp"

namespace abh {

// logit_bnc = x_bch pool_nk / sqrt(K). The gradient of x is added to.
struct PoolingLogitsCase {
  Index B, C, N, K;
  Index gap = 0, d_gap = gap;  // between rows of x, and of its gradient

  std::vector<Slot> inputs() const {
    Slot x = spread(activation("x_bch", {B, C, N * K}), gap, d_gap);
    x.adds = true;
    return {x, weight("pool_nk", {N, K})};
  }
  std::vector<Slot> outputs() const { return {statistic("logit_bnc", {B, N, C})}; }

  template <class Device, class Arrays, class T = typename Arrays::Number>
  void forward(Device& device, Arrays& a) const {
    PoolingLogitsForward<T> pass{};
    pass.logit_bnc = a.out[0].data();
    set_inputs(pass, a);
    pooling_logits_forward<Device, T>(device, pass);
  }
  template <class Device, class Arrays, class T = typename Arrays::Number>
  void backward(Device& device, Arrays& a) const {
    PoolingLogitsBackward<T> pass{};
    pass.d_x_bch = a.d_in[0].data();
    pass.d_x_stride = stride_with(N * K, d_gap);
    pass.d_pool_nk = a.d_in[1].data();
    pass.d_logit_bnc = a.d_out[0].data();
    set_inputs(pass, a);
    pooling_logits_backward<Device, T>(device, pass);
  }

 private:
  // What both passes read.
  template <class Pass, class Arrays>
  void set_inputs(Pass& pass, Arrays& a) const {
    pass.x_bch = a.in[0].data();
    pass.x_stride = stride_with(N * K, gap);
    pass.pool_nk = a.in[1].data();
    pass.B = B;
    pass.C = C;
    pass.N = N;
    pass.K = K;
  }
};

}  // namespace abh
