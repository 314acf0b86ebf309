#pragma once

#include "layers/pooling.hpp"

namespace abh {

// Pooling with decay: with a slope >= 0 per head, a logit decreases by the slope at every later position, masked or
// not. Derivations: docs/layers/pooling_decay.md.
//
//   out_c = (sum over c' of e^(logit_c' - slope (c - c')) x_c')
//           / (sum over c' of e^(logit_c' - slope (c - c')))                      (pooling_decay.1) definition
//
// The maximum is a pair: the largest logit (top) and the number of positions since then (age). A single number,
// decreased at every position, would be rounded at every position, and all weights with it. aged is the previous
// maximum after the decay of one position:
//
//   aged_c        = top_{c-1} - slope (age_{c-1} + 1)                                        (pooling_decay.2)
//   (top, age)_c  = (logit_c, 0) where logit_c >= aged_c, else (top_{c-1}, age_{c-1} + 1),
//   max_c         = top_c - slope age_c                                                      (pooling_decay.3)
//
// aged_c replaces max_{c-1} in (pooling.3) and (pooling.6). If the pair stays, the factor e^(aged_c - max_c) is exactly
// 1. Backward has max_{c-1} but not the pair:
//
//   aged_c = max_c where logit_c < max_c, else max_{c-1} - slope                             (pooling_decay.4)

// Called by the functions of pooling.hpp if there are slopes and no window. Windows and decoding have their own code
// for decay. In plain/, these functions also handle the borders of chunks (pooling_chunk.hpp). The loops over x are the
// loops without decay.
template <class Device, class T>
void pooling_decay_forward(Device&, const PoolingForward<T>&);
template <class Device, class T>
void pooling_decay_backward(Device&, const PoolingBackward<T>&);

}  // namespace abh
