#pragma once

#include "layers/pooling.hpp"

namespace abh {

// A pooled sequence in chunks (extras/chunks/README.md): what crosses the border of two. Derivations:
// extras/chunks/pooling_chunk.md. What lies behind a chunk stands in P positions before it: with a window its last
// positions as they were, else a single one, whose payload is the average so far and whose logit is zeta. It acts on
// all that follow as the positions do that it stands for, and it is its gradient that goes back to them.
//
//   zeta = max_{C-1} + log sum_{C-1}                                                         (pooling_chunk.1)
//
// So a gradient d_lse_c of lse_c = max_c + log sum_c comes in beside d_out_c. Over all positions so far
//
//   drift_c  += d_lse_c                                                                      (pooling_chunk.2)
//
// and in a window
//
//   pull_out  has d_out_c' . out_c' - d_lse_c'  for d_out_c' . out_c'                        (pooling_chunk.3)

// (pooling_chunk.1) of C positions of one sequence, from what pooling_forward saved. Where the last position sees
// nothing zeta is so low that it weighs nothing beside any logit. low_n: what rounding left of the sums, and then of
// zeta; null: nothing is known of it.
inline constexpr double pooling_nothing = -1e30;
template <class Device, class T>
void pooling_zeta(Device&, Accum<T>* zeta_n, const Accum<T>* max_nc, const Accum<T>* sum_nc, Index C, Index N,
                  Accum<T>* low_n = nullptr);

// Copies the rounding remainders of a logit and a payload into their places in a global state. The state has seen one
// position, which stands for many. The sum of one position is 1.
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
