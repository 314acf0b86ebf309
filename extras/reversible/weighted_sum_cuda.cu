#include "cuda/kernel.hpp"
#include "extras/reversible/weighted_sum.hpp"

namespace abh {

namespace {

// Grid, both passes: a thread has `width` adjacent elements, 16 bytes if the arrays are aligned; the last threads
// handle the rest one by one. Every array is read or written once.
constexpr int threads_per_block = 256;

template <class T, int width>
__global__ void forward_kernel(T* out, float p, const T* a, float q, const T* b, Index count) {
  wait_for_kernel_before();
  const Index first = (Index{blockIdx.x} * threads_per_block + threadIdx.x) * width;
  if (first + width <= count) {
    Floats<width> x = load<width>(a + first);
    const Floats<width> y = load<width>(b + first);
    for (int i = 0; i < width; ++i) x.x[i] = p * x.x[i] + q * y.x[i];  // (weighted_sum.1)
    store<width>(out + first, x);
    return;
  }
  for (Index i = first; i < count; ++i) out[i] = T(p * float(a[i]) + q * float(b[i]));  // (weighted_sum.1)
}

template <class T, int width>
__global__ void backward_kernel(T* d_a, T* d_b, float p, float q, const T* d_out, Index count) {
  wait_for_kernel_before();
  const Index first = (Index{blockIdx.x} * threads_per_block + threadIdx.x) * width;
  if (first + width <= count) {
    Floats<width> x = load<width>(d_out + first), y = x;
    for (int i = 0; i < width; ++i) x.x[i] *= p;  // (weighted_sum.2)
    for (int i = 0; i < width; ++i) y.x[i] *= q;  // (weighted_sum.2)
    store<width>(d_a + first, x);
    store<width>(d_b + first, y);
    return;
  }
  for (Index i = first; i < count; ++i) {
    const float d = float(d_out[i]);
    d_a[i] = T(p * d);  // (weighted_sum.2)
    d_b[i] = T(q * d);  // (weighted_sum.2)
  }
}

}  // namespace

template <class Device, class T>
void weighted_sum_forward(Device& device, T* out, double p, const T* a, double q, const T* b, Index count) {
  const auto run = [&](auto kernel, int width) {
    launch(kernel, blocks_for(count, Index{threads_per_block} * width), threads_per_block, 0, device.stream(), out,
           float(p), a, float(q), b, count);
  };
  widest_fits<T>(0, out, a, b) ? run(forward_kernel<T, widest<T>>, widest<T>) : run(forward_kernel<T, 1>, 1);
}

template <class Device, class T>
void weighted_sum_backward(Device& device, T* d_a, T* d_b, double p, double q, const T* d_out, Index count) {
  const auto run = [&](auto kernel, int width) {
    launch(kernel, blocks_for(count, Index{threads_per_block} * width), threads_per_block, 0, device.stream(), d_a, d_b,
           float(p), float(q), d_out, count);
  };
  widest_fits<T>(0, d_a, d_b, d_out) ? run(backward_kernel<T, widest<T>>, widest<T>) : run(backward_kernel<T, 1>, 1);
}

ABH_INSTANTIATE(Gpu, weighted_sum_forward, weighted_sum_backward)

}  // namespace abh
