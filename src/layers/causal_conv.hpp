#pragma once

#include "base/types.hpp"

namespace abh {

// Causal convolution over positions, in groups of channels. An output reads the `kernel` newest positions, including
// its own, of the channels of its group. Positions before the first count as 0. There is no bias. The taps are not
// flipped (cross-correlation); the last tap reads the current position. Derivation: docs/layers/causal_conv.md.
//
// With J = kernel, G = D / groups channels per group, and base(d) = d - d % G, the first channel of the group of d:
//
//   out_bcd = sum_{j<J} sum_{g<G} weight_dgj in_{b, c-(J-1)+j, base(d)+g}                    (causal_conv.1)
//
// Positions below 0 count as 0. Backward, for the group whose first channel is base; positions from C on count as 0:
//
//   d_in_{b, c, base+g} = sum_{j<J} sum_{d: base(d) = base} weight_dgj d_out_{b, c+(J-1)-j, d}   (causal_conv.2)
//   d_weight_dgj       += sum_bc d_out_bcd in_{b, c-(J-1)+j, base(d)+g}                      (causal_conv.3)

// weight_dgj: (D, D / groups, kernel). D is a multiple of groups: groups = D is a depthwise convolution, groups = 1 a
// dense convolution. kernel >= 1; C may be smaller than kernel.
struct CausalConvShape {
  Index B, C, D, groups, kernel;
};

// out_bcd, in_bcd: (B, C, D), two different arrays. 2 B C D G J flops. Reads and writes each array about once. A
// convolution as a matrix product also copies a group into an array J times as large; a CPU copies one group at a time.
template <class Device, class T>
void causal_conv_forward(Device&, T* out_bcd, const T* in_bcd, const T* weight_dgj, const CausalConvShape&);

// d_in_bcd: overwritten; a separate array. d_weight_dgj: added to. Forward saves only the input. Twice the flops of
// forward.
template <class Device, class T>
void causal_conv_backward(Device&, T* d_in_bcd, Accum<T>* d_weight_dgj, const T* d_out_bcd, const T* in_bcd,
                          const T* weight_dgj, const CausalConvShape&);

// Computes one position of one sequence. state_jd: (kernel - 1, D), a ring of the last inputs, initially 0; the input
// of position i is in row i % (kernel - 1). position: number of inputs before this one. out_d may be in_d. B and C of
// the shape are ignored. 2 D G J flops.
template <class Device, class T>
void causal_conv_step(Device&, T* out_d, T* state_jd, const T* in_d, const T* weight_dgj, Index position,
                      const CausalConvShape&);

}  // namespace abh
