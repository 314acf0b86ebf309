#include "cuda/kernel.hpp"
#include "extras/sparse/gather_rows.hpp"

namespace abh {

namespace {

constexpr int gather_warps = 4;  // warps per block
constexpr int mask_threads = 128;

// Source position of row p; below 0 or from C on: none.
__device__ __forceinline__ Index position(const Token* index_p, Index p) { return index_p ? index_p[p] : p; }

// Grid: one warp per row of the gathered order, in packs of `width` columns.
template <class T, int width>
__global__ void gather_kernel(GatherRows<T> a) {
  wait_for_kernel_before();
  const Index bp = Index{blockIdx.x} * gather_warps + threadIdx.x / warp_size;
  if (bp >= a.B * a.P) return;
  const Index b = bp / a.P, c = position(a.index_p, bp % a.P);
  const bool there = 0 <= c && c < a.C;
  T* to = a.to_bpi + bp * stride_or(a.to_stride, a.columns);
  const T* from = a.from_bci + (b * a.C + c) * stride_or(a.from_stride, a.columns);  // not read if there is no source
  for (Index i = Index{threadIdx.x} % warp_size * width; i < a.columns; i += warp_size * width) {
    store<width>(to + i, there ? load<width>(from + i) : Floats<width>{});  // (gather_rows.1)
  }
}

// Grid: as above.
template <class T, int width>
__global__ void gather_backward_kernel(ScatterRows<T> a) {
  wait_for_kernel_before();
  const Index bp = Index{blockIdx.x} * gather_warps + threadIdx.x / warp_size;
  if (bp >= a.B * a.P) return;
  const Index b = bp / a.P, c = position(a.index_p, bp % a.P);
  if (c < 0 || c >= a.C) return;
  T* d_from = a.d_from_bci + (b * a.C + c) * stride_or(a.d_from_stride, a.columns);
  const T* d_to = a.d_to_bpi + bp * stride_or(a.d_to_stride, a.columns);
  for (Index i = Index{threadIdx.x} % warp_size * width; i < a.columns; i += warp_size * width) {
    Floats<width> row = load<width>(d_to + i);
    if (a.add) {
      const Floats<width> before = load<width>(d_from + i);
      for (int v = 0; v < width; ++v) row.x[v] = before.x[v] + row.x[v];  // (gather_rows.3)
    }
    store<width>(d_from + i, row);  // (gather_rows.2)
  }
}

// Grid: one thread per token.
__global__ void mask_kernel(Token* to_bp, const Token* mask_bc, const Token* index_p, Index BP, Index P, Index C) {
  wait_for_kernel_before();
  const Index bp = Index{blockIdx.x} * mask_threads + threadIdx.x;
  if (bp >= BP) return;
  const Index b = bp / P, c = position(index_p, bp % P);
  const bool there = 0 <= c && c < C;
  to_bp[bp] = there && mask_bc ? mask_bc[b * C + c] : Token{there};  // (gather_rows.4)
}

}  // namespace

template <class Device, class T>
void gather_rows_forward(Device& device, const GatherRows<T>& a) {
  const auto run = [&](auto kernel) {
    launch(kernel, blocks_for(a.B * a.P, gather_warps), gather_warps * warp_size, 0, device.stream(), a);
  };
  packs_fit(a.columns, a.to_stride, a.from_stride, a.to_bpi, a.from_bci) ? run(gather_kernel<T, 4>)
                                                                         : run(gather_kernel<T, 1>);
}

template <class Device, class T>
void gather_rows_backward(Device& device, const ScatterRows<T>& a) {
  const auto run = [&](auto kernel) {
    launch(kernel, blocks_for(a.B * a.P, gather_warps), gather_warps * warp_size, 0, device.stream(), a);
  };
  packs_fit(a.columns, a.d_from_stride, a.d_to_stride, a.d_from_bci, a.d_to_bpi) ? run(gather_backward_kernel<T, 4>)
                                                                                 : run(gather_backward_kernel<T, 1>);
}

template <class Device>
void gather_mask(Device& device, Token* to_bp, const Token* mask_bc, const Token* index_p, Index B, Index P, Index C) {
  launch(mask_kernel, blocks_for(B * P, mask_threads), mask_threads, 0, device.stream(), to_bp, mask_bc, index_p, B * P,
         P, C);
}

ABH_INSTANTIATE(Gpu, gather_rows_forward, gather_rows_backward)
template decltype(gather_mask<Gpu>) gather_mask<Gpu>;

}  // namespace abh
