#pragma once

#include "base/types.hpp"

namespace abh {

// Gathers rows of a sequence in another order, or a subset of them: an index gives the source of every row. Chapter:
// extras/sparse/gather_rows.md.
//
//   to_bpi = from_bci with c = index_p, 0 where index_p is none of the C positions   (gather_rows.1)
//
// Backward pass: scatters the gradients to the source rows, overwriting or accumulating:
//
//   d_from_bci = d_to_bpi    with c = index_p, where it is one of the C positions    (gather_rows.2)
//   d_from_bci += d_to_bpi   where it is added                                       (gather_rows.3)
//
// No position occurs twice in an index, so every row has one writer. Positions that do not occur in it are not written.
// A mask is gathered likewise:
//
//   to_bp = mask_bc with c = index_p, 0 where index_p is none of the C positions     (gather_rows.4)
//
// B sequences; their C positions have P rows, p, in gathered order. index_p is the same for all sequences; null: row p
// is position p. A stride is the distance between two rows (0: contiguous).
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

// mask_bc: null if no position is masked.
template <class Device>
void gather_mask(Device&, Token* to_bp, const Token* mask_bc, const Token* index_p, Index B, Index P, Index C);

}  // namespace abh
