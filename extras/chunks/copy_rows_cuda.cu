#include "cuda/kernel.hpp"
#include "extras/chunks/copy_rows.hpp"

namespace abh {

namespace {

constexpr int place_warps = 4;        // warps per block
constexpr Index place_columns = 128;  // columns per piece

// Grid: one warp per piece of a row.
template <class T>
__global__ void copy_rows_kernel(CopyRows<T> a, Index pieces_of_row) {
  wait_for_kernel_before();
  const Index piece = Index{blockIdx.x} * place_warps + threadIdx.x / warp_size, row = piece / pieces_of_row;
  if (row >= a.rows) return;
  const Index begin = piece % pieces_of_row * place_columns;
  const Index end = begin + place_columns < a.columns ? begin + place_columns : a.columns;
  for (Index i = begin + Index{threadIdx.x} % warp_size; i < end; i += warp_size) {
    T* to = a.to + row * a.to_stride + i;
    const T from = a.from[row * a.from_stride + i];
    if (a.add) {
      *to = T(float(*to) + float(from));  // (copy_rows.2)
    } else {
      *to = from;  // (copy_rows.1)
    }
  }
}

}  // namespace

template <class Device, class T>
void copy_rows(Device& device, const CopyRows<T>& a) {
  const Index pieces_of_row = blocks_for(a.columns, place_columns);
  launch(copy_rows_kernel<T>, blocks_for(a.rows * pieces_of_row, place_warps), place_warps * warp_size, 0,
         device.stream(), a, pieces_of_row);
}

ABH_INSTANTIATE(Gpu, copy_rows)

}  // namespace abh
