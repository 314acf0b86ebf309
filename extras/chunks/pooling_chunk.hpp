#pragma once

#include "layers/pooling.hpp"

namespace abh {

// Pooling of a sequence in chunks (extras/chunks/README.md): the state between two chunks. Derivations:
// extras/chunks/pooling_chunk.md. P positions before the chunk represent the past. With a window they are its last
// positions, unchanged. Otherwise P = 1: its values are the average so far and its logit is zeta. Such a position has
// the effect of all positions that it represents, and its gradient is passed back to them.
//
//   zeta = max_{C-1} + log sum_{C-1}                                                         (pooling_chunk.1)
//
// The gradient d_lse_c of lse_c = max_c + log sum_c is added to that of d_out_c. Over all positions so far
//
//   drift_c  += d_lse_c                                                                      (pooling_chunk.2)
//
// and with a window
//
//   pull_out  has d_out_c' . out_c' - d_lse_c'  for d_out_c' . out_c'                        (pooling_chunk.3)

// (pooling_chunk.1) for C positions of one sequence, from the arrays that pooling_forward saved. If all positions so
// far are masked, zeta is so low that its weight is 0 next to any logit. low_n: rounding errors of the sums on entry,
// of zeta on return; null: none.
inline constexpr double pooling_nothing = -1e30;
template <class Device, class T>
void pooling_zeta(Device&, Accum<T>* zeta_n, const Accum<T>* max_nc, const Accum<T>* sum_nc, Index C, Index N,
                  Accum<T>* low_n = nullptr);

// Copies the rounding errors of a logit and of values to a global state. The state holds one position, which represents
// many. The sum of one position is 1.
template <class Device, class T>
void pooling_put_low_part(Device& device, Accum<T>* state, const PoolingLowPart<const Accum<T>>& low,
                          const PoolingShape& shape, bool decays = false) {
  const Index size = pooling_state_size({.B = 1, .C = 1, .N = 1, .K = shape.K, .payloads = shape.payloads}, decays);
  for (Index n = 0; n < shape.N; ++n) {
    Accum<T>* rests = state + n * size + 2 + shape.payloads * shape.K;
    device.copy(rests, low.weight_n + n, 1);
    for (Index p = 0; p < shape.payloads; ++p) {
      device.copy(rests + 1 + p * shape.K, low.payload_h + (p * shape.N + n) * shape.K, shape.K);
    }
  }
}

}  // namespace abh
