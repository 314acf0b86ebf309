#include "cuda/kernel.hpp"
#include "layers/dropout.hpp"

namespace abh {

namespace {

constexpr int threads = 256;  // of a block

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
template <int V>
__device__ Floats<V> factors_from(const DropoutMask& mask, Index first) {
  static_assert(V % 4 == 0);
  Floats<V> factors;
  for (int block = 0; block < V / 4; ++block) {
    const Floats<4> four = dropout_factors(mask, first / 4 + block);  // (dropout.1)
    for (int i = 0; i < 4; ++i) factors.x[4 * block + i] = four.x[i];
  }
  return factors;
}

// Numbers first ... first + V - 1 of an array of `count`, zeros behind its end.
template <int V, bool aligned, class T>
__device__ Floats<V> load_within(const T* from, Index first, Index count) {
  if (aligned && first + V <= count) return load<V>(from + first);
  Floats<V> floats;
  for (int i = 0; i < V; ++i) floats.x[i] = first + i < count ? float(from[first + i]) : 0.0f;
  return floats;
}
template <int V, bool aligned, class T>
__device__ void store_within(T* to, const Floats<V>& floats, Index first, Index count) {
  if (aligned && first + V <= count) return store<V>(to + first, floats);
  for (int i = 0; i < V; ++i) {
    if (first + i < count) to[first + i] = T(floats.x[i]);
  }
}

// Grid, both ways: one thread for `elements`. Every array is read or written once, and there is no mask in memory.

template <class T, bool aligned>
__global__ void forward_kernel(T* out, const T* in, const T* residual, DropoutMask mask, Index count) {
  constexpr int V = elements<T>;
  const Index first = (Index{blockIdx.x} * threads + threadIdx.x) * V;
  if (first >= count) return;
  Floats<V> sum = load_within<V, aligned>(in, first, count);
  const Floats<V> factor = factors_from<V>(mask, first);
  for (int i = 0; i < V; ++i) sum.x[i] *= factor.x[i];  // (dropout.2)
  if (residual) {
    const Floats<V> more = load_within<V, aligned>(residual, first, count);
    for (int i = 0; i < V; ++i) sum.x[i] += more.x[i];
  }
  store_within<V, aligned>(out, sum, first, count);
}

template <class T, bool aligned>
__global__ void backward_kernel(T* d_in, const T* d_out, DropoutMask mask, Index count) {
  constexpr int V = elements<T>;
  const Index first = (Index{blockIdx.x} * threads + threadIdx.x) * V;
  if (first >= count) return;
  Floats<V> d = load_within<V, aligned>(d_out, first, count);
  const Floats<V> factor = factors_from<V>(mask, first);
  for (int i = 0; i < V; ++i) d.x[i] *= factor.x[i];  // (dropout.3)
  store_within<V, aligned>(d_in, d, first, count);
}

}  // namespace

template <class Device, class T>
void dropout_forward(Device& device, T* out, const T* in, const T* residual, const Dropout& dropout, Index count) {
  if (dropout.p == 0 && out == in && !residual) return;
  const auto run = [&](auto kernel) {
    launch(kernel, blocks_for(count, threads * elements<T>), threads, 0, device.stream(), out, in, residual,
           mask_of(dropout), count);
  };
  widest_fits<T>(0, out, in, residual) ? run(forward_kernel<T, true>) : run(forward_kernel<T, false>);
}

template <class Device, class T>
void dropout_backward(Device& device, T* d_in, const T* d_out, const Dropout& dropout, Index count) {
  if (dropout.p == 0 && d_in == d_out) return;
  const auto run = [&](auto kernel) {
    launch(kernel, blocks_for(count, threads * elements<T>), threads, 0, device.stream(), d_in, d_out, mask_of(dropout),
           count);
  };
  widest_fits<T>(0, d_in, d_out) ? run(backward_kernel<T, true>) : run(backward_kernel<T, false>);
}

#define INSTANTIATE(T)                                                \
  template decltype(dropout_forward<Gpu, T>) dropout_forward<Gpu, T>; \
  template decltype(dropout_backward<Gpu, T>) dropout_backward<Gpu, T>;
ABH_FOR_EACH_NUMBER(INSTANTIATE)

}  // namespace abh
