#include "cuda/kernel.hpp"
#include "layers/dropout.hpp"

namespace abh {

namespace {

constexpr int threads_per_block = 256;

// A thread takes the neighbouring elements of one widest access, 4 floats or 8 bf16: one block of Philox words or two,
// so that every word is used and no two threads draw the same block.
//
//   element      0 1 2 3   4 5 6 7   8 9 ...
//   Philox block    0         1         2
//   float        thread 0  thread 1  thread 2
//   bf16         thread 0 .........  thread 1
//
// Where an array is not aligned, and in the last thread, the same elements are read and written one by one: the mask
// hangs on the number of an element, not on its address.
template <class T>
inline constexpr int elements = widest<T>;

// The factors of the elements from `first` on, a multiple of 4.
template <int width>
__device__ Floats<width> factors_from(const DropoutMask& mask, Index first) {
  static_assert(width % 4 == 0);
  Floats<width> factors;
  for (int block = 0; block < width / 4; ++block) {
    const Floats<4> four = dropout_factors(mask, first + 4 * block);  // (dropout.1)
    for (int i = 0; i < 4; ++i) factors.x[4 * block + i] = four.x[i];
  }
  return factors;
}

// Numbers first ... first + width - 1 of an array of `count`, zeros behind its end.
template <int width, bool aligned, class T>
__device__ Floats<width> load_within(const T* from, Index first, Index count) {
  if (aligned && first + width <= count) return load<width>(from + first);
  Floats<width> floats;
  for (int i = 0; i < width; ++i) floats.x[i] = first + i < count ? float(from[first + i]) : 0.0f;
  return floats;
}
template <int width, bool aligned, class T>
__device__ void store_within(T* to, const Floats<width>& floats, Index first, Index count) {
  if (aligned && first + width <= count) return store<width>(to + first, floats);
  for (int i = 0; i < width; ++i) {
    if (first + i < count) to[first + i] = T(floats.x[i]);
  }
}

// Grid, both ways: one thread for `elements`. Every array is read or written once, and there is no mask in memory.

template <class T, bool aligned>
__global__ void forward_kernel(T* out, const T* in, const T* residual, DropoutMask mask, Index count) {
  constexpr int width = elements<T>;
  const Index first = (Index{blockIdx.x} * threads_per_block + threadIdx.x) * width;
  if (first >= count) return;
  Floats<width> sum = load_within<width, aligned>(in, first, count);
  const Floats<width> factor = factors_from<width>(mask, first);
  for (int i = 0; i < width; ++i) sum.x[i] *= factor.x[i];  // (dropout.2)
  if (residual) {
    const Floats<width> more = load_within<width, aligned>(residual, first, count);
    for (int i = 0; i < width; ++i) sum.x[i] += more.x[i];
  }
  store_within<width, aligned>(out, sum, first, count);
}

template <class T, bool aligned>
__global__ void backward_kernel(T* d_in, const T* d_out, DropoutMask mask, Index count) {
  constexpr int width = elements<T>;
  const Index first = (Index{blockIdx.x} * threads_per_block + threadIdx.x) * width;
  if (first >= count) return;
  Floats<width> d = load_within<width, aligned>(d_out, first, count);
  const Floats<width> factor = factors_from<width>(mask, first);  // those of forward, drawn again
  for (int i = 0; i < width; ++i) d.x[i] *= factor.x[i];          // (dropout.3)
  store_within<width, aligned>(d_in, d, first, count);
}

}  // namespace

template <class Device, class T>
void dropout_forward(Device& device, T* out, const T* in, const T* residual, const Dropout& dropout, Index count) {
  if (dropout.p == 0 && out == in && !residual) return;
  const auto run = [&](auto kernel) {
    launch(kernel, blocks_for(count, threads_per_block * elements<T>), threads_per_block, 0, device.stream(), out, in,
           residual, mask_of(dropout), count);
  };
  widest_fits<T>(0, out, in, residual) ? run(forward_kernel<T, true>) : run(forward_kernel<T, false>);
}

template <class Device, class T>
void dropout_backward(Device& device, T* d_in, const T* d_out, const Dropout& dropout, Index count) {
  if (dropout.p == 0 && d_in == d_out) return;
  const auto run = [&](auto kernel) {
    launch(kernel, blocks_for(count, threads_per_block * elements<T>), threads_per_block, 0, device.stream(), d_in,
           d_out, mask_of(dropout), count);
  };
  widest_fits<T>(0, d_in, d_out) ? run(backward_kernel<T, true>) : run(backward_kernel<T, false>);
}

#define INSTANTIATE(T)                                                \
  template decltype(dropout_forward<Gpu, T>) dropout_forward<Gpu, T>; \
  template decltype(dropout_backward<Gpu, T>) dropout_backward<Gpu, T>;
ABH_FOR_EACH_NUMBER(INSTANTIATE)

}  // namespace abh
