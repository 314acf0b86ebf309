#pragma once

#include "layers/pooling.hpp"

namespace abh {

// Pooling without causal mask: every output is the average over all positions. Window and slope are not allowed.
// Derivations: extras/bidirectional/README.md.
//
//   out       = sum over c of alpha_c x_c,  alpha_c = e^(logit_c - max) / sum                (pooling_bidirectional.1)
//   d_x_c     = alpha_c (sum over c' of d_out_c')                                            (pooling_bidirectional.2)
//   d_logit_c = alpha_c ((x_c - out) . (sum over c' of d_out_c') + sum over c' of d_lse_c')  (pooling_bidirectional.3)

// Called by the functions of pooling.hpp if `causal` is false. 2 flops per element forward, 5 backward; each reads x
// once. max_bnc and sum_bnc are the same at all positions.
template <class Device, class T>
void pooling_bidirectional_forward(Device&, const PoolingForward<T>&);
template <class Device, class T>
void pooling_bidirectional_backward(Device&, const PoolingBackward<T>&);

}  // namespace abh
