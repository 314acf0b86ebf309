#pragma once

#include "layers/pooling.hpp"

namespace abh {

// Pooling that is not causal: every position sees every position, and all rows are one average. Neither a window nor a
// slope then. Derivations: extras/bidirectional/README.md.
//
//   out       = sum over c of alpha_c x_c,  alpha_c = e^(logit_c - max) / sum                (pooling_bidirectional.1)
//   d_x_c     = alpha_c (sum over c' of d_out_c')                                            (pooling_bidirectional.2)
//   d_logit_c = alpha_c ((x_c - out) . (sum over c' of d_out_c') + sum over c' of d_lse_c')  (pooling_bidirectional.3)

// The functions are those of pooling.hpp, which come here without `causal`. 2 flops an element forward, 5 backward, x
// read once in each. max_bnc and sum_bnc are the same at all positions.
template <class Device, class T>
void pooling_bidirectional_forward(Device&, const PoolingForward<T>&);
template <class Device, class T>
void pooling_bidirectional_backward(Device&, const PoolingBackward<T>&);

}  // namespace abh
