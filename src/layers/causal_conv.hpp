#pragma once

#include "base/types.hpp"

namespace abh {

// Causal convolution over positions, in groups of channels: every channel sees the `kernel` newest positions, its own
// included, of the channels of its group. Zeros stand before the first position; there is no bias. It is a
// cross-correlation: the taps are not flipped, the last one reads the current position. Derivation:
// docs/layers/causal_conv.md.
//
// With J = kernel, G = D / groups channels in a group, and base(d) = d - d % G the first channel of d's group:
//
//   out_bcd = sum_{j<J} sum_{g<G} weight_dgj in_{b, c-(J-1)+j, base(d)+g}                    (causal_conv.1)
//
// where positions below 0 count as 0. Backward, for the group whose first channel is base, positions from C on counting
// as 0:
//
//   d_in_{b, c, base+g} = sum_{j<J} sum_{d: base(d) = base} weight_dgj d_out_{b, c+(J-1)-j, d}   (causal_conv.2)
//   d_weight_dgj       += sum_bc d_out_bcd in_{b, c-(J-1)+j, base(d)+g}                      (causal_conv.3)

// weight_dgj: (D, D / groups, kernel). groups divides D: D of them is a depthwise convolution, 1 a dense one.
// kernel >= 1; C may be smaller than kernel.
struct CausalConvShape {
  Index B, C, D, groups, kernel;
};

// out_bcd, in_bcd: (B, C, D), not the same array. 2 B C D G J flops; reads and writes each array about once (for
// a matrix product a group goes through a copy J times as large, on a CPU one group at a time).
template <class Device, class T>
void causal_conv_forward(Device&, T* out_bcd, const T* in_bcd, const T* weight_dgj, const CausalConvShape&);

// d_in_bcd: overwritten, none of the other arrays. d_weight_dgj: added to. Nothing is saved but the input. Twice the
// flops of the forward pass.
template <class Device, class T>
void causal_conv_backward(Device&, T* d_in_bcd, Accum<T>* d_weight_dgj, const T* d_out_bcd, const T* in_bcd,
                          const T* weight_dgj, const CausalConvShape&);

// One position of one sequence. state_jd: (kernel - 1, D), the last inputs as a ring, zero at the start; the input of
// position i lies in row i % (kernel - 1). position: how many inputs came before. out_d may be in_d. The shape's B and
// C are not read. 2 D G J flops.
template <class Device, class T>
void causal_conv_step(Device&, T* out_d, T* state_jd, const T* in_d, const T* weight_dgj, Index position,
                      const CausalConvShape&);

}  // namespace abh
