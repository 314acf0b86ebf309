#pragma once

#include "base/types.hpp"

namespace abh {

// Rotary positions: channels 2i and 2i + 1 of a head are a point in the plane, rotated by an angle proportional to the
// position. The dot product of a rotated query and a rotated key then depends on the distance of the two positions
// only. Su et al., "RoFormer: Enhanced transformer with rotary position embedding", 2021. Derivation:
// extras/positions/rotary.md.
//
// turn_ck holds the cosine of the angle of position c and pair i at k = 2i, and the sine at k = 2i + 1. For 2i + 1 < K:
//
//   out_{bcn, 2i}     = turn_{c, 2i} in_{bcn, 2i} - turn_{c, 2i + 1} in_{bcn, 2i + 1}          (rotary.1)
//   out_{bcn, 2i + 1} = turn_{c, 2i + 1} in_{bcn, 2i} + turn_{c, 2i} in_{bcn, 2i + 1}          (rotary.2)
//   out_{bcn, K - 1}  = in_{bcn, K - 1} where K is odd                                         (rotary.3)
//
// Backward pass: the rotation by the opposite angle:
//
//   d_in_{bcn, 2i}     = turn_{c, 2i} d_out_{bcn, 2i} + turn_{c, 2i + 1} d_out_{bcn, 2i + 1}   (rotary.4)
//   d_in_{bcn, 2i + 1} = turn_{c, 2i} d_out_{bcn, 2i + 1} - turn_{c, 2i + 1} d_out_{bcn, 2i}   (rotary.5)
//   d_in_{bcn, K - 1}  = d_out_{bcn, K - 1} where K is odd                                     (rotary.6)

// Rows of N heads of K channels. A stride is the distance between two consecutive rows (0: N K), so rows may be slices
// of wider rows. out_bch may be in_bch, with the same stride. turn_ck, (C, K), starts with the row of c = 0; if K is
// odd, the last number of a row is not used. B, C >= 0; N, K >= 1. 3 flops per element; reads and writes each row once.
// Saves nothing.
template <class T>
struct RotaryForward {
  T* out_bch;
  const T* in_bch;
  Index out_stride = 0, in_stride = 0;
  const Accum<T>* turn_ck;
  Index B, C, N, K;
};
template <class Device, class T>
void rotary_forward(Device&, const RotaryForward<T>&);

// d_in_bch, overwritten, may be d_out_bch itself, with the same stride.
template <class T>
struct RotaryBackward {
  T* d_in_bch;
  const T* d_out_bch;
  Index d_in_stride = 0, d_out_stride = 0;
  const Accum<T>* turn_ck;
  Index B, C, N, K;
};
template <class Device, class T>
void rotary_backward(Device&, const RotaryBackward<T>&);

}  // namespace abh
