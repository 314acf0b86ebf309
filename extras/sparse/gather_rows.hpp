#pragma once

#include "base/types.hpp"

namespace abh {

// Rows of a sequence in another order, or some of them: an index says for every row whence it comes. Chapter:
// extras/sparse/gather_rows.md.
//
//   to_bpi = from_bci with c = index_p, 0 where index_p is none of the C positions   (gather_rows.1)
//
// Backward, to where they came from, where they replace what stands there or are added to it:
//
//   d_from_bci = d_to_bpi    with c = index_p, where it is one of the C positions    (gather_rows.2)
//   d_from_bci += d_to_bpi   where it is added                                       (gather_rows.3)
//
// No position stands in an index twice, so that every row has one writer. Positions that do not stand in it stay as
// they are. A mask goes the same way:
//
//   to_bp = mask_bc with c = index_p, 0 where index_p is none of the C positions     (gather_rows.4)
//
// B sequences, whose C positions have P rows, p, in the gathered order. index_p is the same for all of them; null: row
// p is position p. A stride is the distance between two rows (0: they touch).
template <class T>
struct GatherRows {
  T* to_bpi;
  const T* from_bci;
  Index to_stride = 0, from_stride = 0;
  const Token* index_p;
  Index B, P, C, columns;
};
template <class Device, class T>
void gather_rows_forward(Device&, const GatherRows<T>&);

template <class T>
struct ScatterRows {
  T* d_from_bci;
  const T* d_to_bpi;
  Index d_from_stride = 0, d_to_stride = 0;
  bool add;
  const Token* index_p;
  Index B, P, C, columns;
};
template <class Device, class T>
void gather_rows_backward(Device&, const ScatterRows<T>&);

// mask_bc: null where all positions are real.
template <class Device>
void gather_mask(Device&, Token* to_bp, const Token* mask_bc, const Token* index_p, Index B, Index P, Index C);

}  // namespace abh
