#pragma once

#include "layers/pooling.hpp"

namespace abh {

// Pooling with decay: with a slope >= 0 a head, a logit weighs less by it at every position that follows, masked or
// not. Derivations: docs/layers/pooling_decay.md.
//
//   out_c = (sum over c' of e^(logit_c' - slope (c - c')) x_c')
//           / (sum over c' of e^(logit_c' - slope (c - c')))                      (pooling_decay.1) definition
//
// The maximum is kept as a pair, the largest logit as it was and the positions since: a number that is lowered at every
// position would be rounded at every position, and the weights of all that was seen with it. aged is what the maximum
// before has come down to:
//
//   aged_c        = top_{c-1} - slope (age_{c-1} + 1)                                        (pooling_decay.2)
//   (top, age)_c  = (logit_c, 0) where logit_c >= aged_c, else (top_{c-1}, age_{c-1} + 1),
//   max_c         = top_c - slope age_c                                                      (pooling_decay.3)
//
// and aged_c stands for max_{c-1} in (pooling.3) and (pooling.6); where the pair stays, the factor e^(aged_c - max_c)
// is exactly 1. Backward has max_{c-1} but no pair:
//
//   aged_c = max_c where logit_c < max_c, else max_{c-1} - slope                             (pooling_decay.4)

// The functions are those of pooling.hpp, which come here with slopes over all positions so far; windows and steps have
// their own share of decay. In plain/ they take the borders of chunks (pooling_chunk.hpp), too. The sweeps over the
// payload are those without decay.
template <class Device, class T>
void pooling_decay_forward(Device&, const PoolingForward<T>&);
template <class Device, class T>
void pooling_decay_backward(Device&, const PoolingBackward<T>&);

}  // namespace abh
