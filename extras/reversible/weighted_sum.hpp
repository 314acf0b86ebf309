#pragma once

#include "base/types.hpp"

namespace abh {

// Weighted sum of two arrays, element by element, with one weight per array: 1 and -1 give the difference, 1/2 and 1/2
// the mean. Derivation: extras/reversible/weighted_sum.md.
//
//   out_i = p a_i + q b_i                       (weighted_sum.1)
//   d_a_i = p d_out_i,  d_b_i = q d_out_i       (weighted_sum.2)
//
// a, b, out: `count` >= 0 elements of any shape; out may be a or b. Backward needs no input of forward. 3 flops per
// element forward; reads 2 arrays, writes 1.
template <class Device, class T>
void weighted_sum_forward(Device&, T* out, double p, const T* a, double q, const T* b, Index count);

// d_a and d_b are overwritten; one of them may be d_out itself, but not both. 2 flops per element; reads 1 array,
// writes 2.
template <class Device, class T>
void weighted_sum_backward(Device&, T* d_a, T* d_b, double p, double q, const T* d_out, Index count);

}  // namespace abh
