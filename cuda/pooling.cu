#include "cuda/pooling_global.hpp"
#include "cuda/pooling_in_tile.hpp"
#include "layers/pooling_decay.hpp"
#include "layers/pooling_of_all.hpp"
#include "layers/pooling_windowed.hpp"

namespace abh {

// As on the CPU, pooling has two sides. What is one number a position and head (maxima, sums, weights) is computed
// first, by one block a head, which walks through the sequence 1,024 positions at a time. With all weights known, what
// is left for the K channels of a head is one kind of scan, in one direction or the other,
//
//   state_c = keep_c state_{c-1} + add_c in_c          keep_c = 0 where a window's block begins,
//
// be it an average, a suffix or a pull: pooling_scan.hpp runs it over tiles of the sequence. All keep_c lie in [0, 1],
// or are e to the power of differences that add up to little more than 0, so that products of them, which is what tiles
// need to be joined, cannot overflow. They are 1 as long as one maximum stays: an average is scanned as the weighted
// sum above its sum of weights, and divided where it is emitted, and an adjoint as what is below, over sum_c. The form
// beta out + alpha x would be rounded at every position, by as much at each where beta is nearly the same.
//
// Bytes a row of H channels, beside a few numbers a head: with C <= 256, or windows that divide 256, where no
// tile waits for another one,
//
//   forward, global     x once, out once            backward, global     d_out, x, out, d_x once
//   forward, windowed   x twice, suffixes (float)   backward, windowed   d_out twice, x, out, d_x once, pulls (float)
//                       written and read, out once                       written and read
//
// and otherwise what is scanned (x, d_out) is read once more in every scan, from the second-level cache if it fits. Not
// causal: as global, whatever C is; there is no scan, but sums over the tiles (pooling_of_all.cu). Where a tile has
// all of a sequence and of its heads, both sides are one kernel (pooling_in_tile.hpp).

template <class Device, class T>
void pooling_forward(Device& device, const PoolingForward<T>& a) {
  if (a.in.shape.B * a.in.shape.C == 0) return;
  const Index H = a.in.shape.H(), stride = stride_or(a.in.x_stride, H);
  const bool whole = !a.first.weight_n && !a.last.weight_n;
  if (whole && fits_a_tile(a.in.shape) && widest_fits<T>(stride, a.in.x_bch, a.out_bch)) {
    return pooling_forward_in_tile(device, a);
  }
  if (!a.in.shape.causal) return pooling_of_all_forward(device, a);
  if (block_of(a.in.shape) < a.in.shape.C) return pooling_windowed_forward(device, a);
  if (a.in.slope_n) return pooling_decay_forward(device, a);
  pooling_forward_global<false>(device, a);
}

template <class Device, class T>
void pooling_backward(Device& device, const PoolingBackward<T>& a) {
  if (a.in.shape.B * a.in.shape.C == 0) return;
  const Index H = a.in.shape.H(), stride = stride_or(a.in.x_stride, H), d_stride = stride_or(a.d_x_stride, H);
  if (fits_a_tile(a.in.shape) && widest_fits<T>(stride, a.in.x_bch, a.out_bch, a.d_out_bch) &&
      widest_fits<T>(d_stride, a.d_x_bch)) {
    return pooling_backward_in_tile(device, a);
  }
  if (!a.in.shape.causal) return pooling_of_all_backward(device, a);
  if (block_of(a.in.shape) < a.in.shape.C) return pooling_windowed_backward(device, a);
  if (a.in.slope_n) return pooling_decay_backward(device, a);
  pooling_backward_global<false>(device, a);
}

#define INSTANTIATE(T)                                                \
  template decltype(pooling_forward<Gpu, T>) pooling_forward<Gpu, T>; \
  template decltype(pooling_backward<Gpu, T>) pooling_backward<Gpu, T>;
ABH_FOR_EACH_NUMBER(INSTANTIATE)

}  // namespace abh
