#include "cuda/kernel.hpp"
#include "cuda/row_sums.hpp"
#include "layers/dropout.hpp"
#include "layers/parts/with_row_sums.hpp"

namespace abh {

namespace {

constexpr int threads_per_block = 256;

// A thread has the adjacent elements of one 16-byte access, 4 floats or 8 bf16: one or two Philox blocks. Every word is
// used and no two threads compute the same block.
//
//   element      0 1 2 3   4 5 6 7   8 9 ...
//   Philox block    0         1         2
//   float        thread 0  thread 1  thread 2
//   bf16         thread 0 .........  thread 1
//
// It has two such accesses, which are as far apart as the elements of its whole block, and issues both loads before it
// computes the random numbers, which hides the latency.
//
// In unaligned arrays, and in the last block, the same elements are accessed one by one: the mask depends on the index
// of an element, not on its address.
constexpr int accesses = 2;
template <class T>
inline constexpr int elements_per_block = threads_per_block* accesses* widest<T>;

// Elements of a thread in an array of `count`. `whole`: the arrays are aligned, and the block is complete.
template <class T, bool aligned>
struct Own {
  static constexpr int width = widest<T>;
  Index count;
  Index begin = Index{blockIdx.x} * elements_per_block<T>;
  bool whole = aligned && begin + elements_per_block<T> <= count;

  __device__ Index first(int access) const { return begin + (access * threads_per_block + int(threadIdx.x)) * width; }

  // Zeros past the end.
  __device__ Pack<T, width> load(const T* from, int access) const {
    if (whole) return pack_at<width>(from + first(access));
    Pack<T, width> pack;
    for (int i = 0; i < width; ++i) pack.x[i] = first(access) + i < count ? from[first(access) + i] : T(0.0f);
    return pack;
  }
  __device__ void store(T* to, int access, const Floats<width>& floats) const {
    if (whole) return abh::store<width>(to + first(access), floats);
    for (int i = 0; i < width; ++i) {
      if (first(access) + i < count) to[first(access) + i] = T(floats.x[i]);
    }
  }
};

// Grid, both passes: one thread per `accesses`. Every array is read or written once; no mask is stored.

template <class T, bool aligned>
__global__ void __launch_bounds__(threads_per_block)
    forward_kernel(T* out, const T* in, const T* residual, DropoutMask mask, Index count) {
  wait_for_kernel_before();
  require_at_most(threads_per_block);
  constexpr int width = widest<T>;
  const Own<T, aligned> own{count};
  Pack<T, width> ins[accesses], residuals[accesses];
  ABH_UNROLL(accesses)
  for (int n = 0; n < accesses; ++n) {
    ins[n] = own.load(in, n);
    if (residual) residuals[n] = own.load(residual, n);
  }
  ABH_UNROLL(accesses)
  for (int n = 0; n < accesses; ++n) {
    const Floats<width> factor = dropout_factors<width>(mask, own.first(n));  // (dropout.1)
    Floats<width> sum;
    for (int i = 0; i < width; ++i) sum.x[i] = float(ins[n].x[i]) * factor.x[i];  // (dropout.2)
    if (residual) {
      for (int i = 0; i < width; ++i) sum.x[i] += float(residuals[n].x[i]);
    }
    own.store(out, n, sum);
  }
}

template <class T, bool aligned>
__global__ void __launch_bounds__(threads_per_block)
    backward_kernel(T* d_in, const T* d_out, DropoutMask mask, Index count) {
  wait_for_kernel_before();
  require_at_most(threads_per_block);
  constexpr int width = widest<T>;
  const Own<T, aligned> own{count};
  Pack<T, width> d_outs[accesses];
  ABH_UNROLL(accesses)
  for (int n = 0; n < accesses; ++n) d_outs[n] = own.load(d_out, n);
  ABH_UNROLL(accesses)
  for (int n = 0; n < accesses; ++n) {
    const Floats<width> factor = dropout_factors<width>(mask, own.first(n));  // the factors of forward, drawn again
    Floats<width> d;
    for (int i = 0; i < width; ++i) d.x[i] = float(d_outs[n].x[i]) * factor.x[i];  // (dropout.3)
    own.store(d_in, n, d);
  }
}

// Output rows of backward_kernel.
template <class T>
struct DroppedRows {
  T* d_in_bcd;
  const T* d_out_bcd;
  DropoutMask mask;
  Index D;
  template <int width>
  using Loaded = Words<T, width>;
  template <int width>
  __device__ __forceinline__ Words<T, width> fetch(Index bc, Index d) const {
    return load_words<width>(d_out_bcd + bc * D + d);
  }
  template <int width>
  __device__ __forceinline__ Floats<width> finish(Index bc, Index d, const Words<T, width>& d_out) const {
    Floats<width> d_in = floats_of<T, width>(d_out);
    const Floats<width> factor = factors_of<width>(mask, bc * D + d);
    for (int i = 0; i < width; ++i) d_in.x[i] *= factor.x[i];  // (dropout.3)
    return stored<width>(d_in_bcd + bc * D + d, d_in);
  }
};

}  // namespace

template <class Device, class T>
void dropout_forward(Device& device, T* out, const T* in, const T* residual, const Dropout& dropout, Index count) {
  if (dropout.p == 0 && out == in && !residual) return;
  const auto run = [&](auto kernel) {
    launch(kernel, blocks_for(count, elements_per_block<T>), threads_per_block, 0, device.stream(), out, in, residual,
           mask_of(dropout), count);
  };
  widest_fits<T>(0, out, in, residual) ? run(forward_kernel<T, true>) : run(forward_kernel<T, false>);
}

template <class Device, class T>
void dropout_backward(Device& device, T* d_in, const T* d_out, const Dropout& dropout, Index count) {
  if (dropout.p == 0 && d_in == d_out) return;
  const auto run = [&](auto kernel) {
    launch(kernel, blocks_for(count, elements_per_block<T>), threads_per_block, 0, device.stream(), d_in, d_out,
           mask_of(dropout), count);
  };
  widest_fits<T>(0, d_in, d_out) ? run(backward_kernel<T, true>) : run(backward_kernel<T, false>);
}

template <class Device, class T>
void dropout_backward_with_row_sums(Device& device, Accum<T>* d_bias_d, T* d_in_bcd, const T* d_out_bcd,
                                    const Dropout& dropout, RowsOf rows) {
  const DroppedRows<T> dropped{d_in_bcd, d_out_bcd, mask_of(dropout), rows.D};
  with_row_packs<T>(rows.D, widest_fits<T>(rows.D, d_in_bcd, d_out_bcd),
                    [&]<int width>() { run_row_sums<width>(device, d_bias_d, dropped, rows.BC, rows.D); });
}

ABH_INSTANTIATE(Gpu, dropout_forward, dropout_backward, dropout_backward_with_row_sums)

}  // namespace abh
