#include "cuda/kernel.hpp"
#include "cuda/row_sums.hpp"
#include "extras/seq2seq/relu.hpp"
#include "layers/parts/with_row_sums.hpp"

namespace abh {

namespace {

// Grid, both passes: a thread has `width` adjacent elements, 16 bytes if the arrays are aligned; the last threads
// handle the rest one by one. Every array is read or written once.
constexpr int threads_per_block = 256;

template <class T, int width>
__global__ void forward_kernel(T* out, const T* in, Index count) {
  wait_for_kernel_before();
  const Index first = (Index{blockIdx.x} * threads_per_block + threadIdx.x) * width;
  if (first + width <= count) {
    Floats<width> x = load<width>(in + first);
    for (int i = 0; i < width; ++i) x.x[i] = x.x[i] <= 0 ? 0 : x.x[i];  // (relu.1)
    store<width>(out + first, x);
    return;
  }
  for (Index i = first; i < count; ++i) out[i] = float(in[i]) <= 0 ? T(0.0f) : in[i];  // (relu.1)
}

struct ReluGradient {
  __device__ static float of(float d_out, float in) { return in <= 0 ? 0 : d_out; }  // (relu.2)
};

template <class T, int width>
__global__ void backward_kernel(T* d_in, const T* d_out, const T* in, Index count) {
  wait_for_kernel_before();
  const Index first = (Index{blockIdx.x} * threads_per_block + threadIdx.x) * width;
  if (first + width <= count) {
    const Floats<width> x = load<width>(in + first);
    Floats<width> d = load<width>(d_out + first);
    for (int i = 0; i < width; ++i) d.x[i] = ReluGradient::of(d.x[i], x.x[i]);
    store<width>(d_in + first, d);
    return;
  }
  for (Index i = first; i < count; ++i) d_in[i] = T(ReluGradient::of(float(d_out[i]), float(in[i])));
}

}  // namespace

template <class Device, class T>
void relu_forward(Device& device, T* out, const T* in, Index count) {
  const auto run = [&](auto kernel, int width) {
    launch(kernel, blocks_for(count, Index{threads_per_block} * width), threads_per_block, 0, device.stream(), out, in,
           count);
  };
  widest_fits<T>(0, out, in) ? run(forward_kernel<T, widest<T>>, widest<T>) : run(forward_kernel<T, 1>, 1);
}

template <class Device, class T>
void relu_backward(Device& device, T* d_in, const T* d_out, const T* in, Index count) {
  const auto run = [&](auto kernel, int width) {
    launch(kernel, blocks_for(count, Index{threads_per_block} * width), threads_per_block, 0, device.stream(), d_in,
           d_out, in, count);
  };
  widest_fits<T>(0, d_in, d_out, in) ? run(backward_kernel<T, widest<T>>, widest<T>) : run(backward_kernel<T, 1>, 1);
}

template <class Device, class T>
void relu_backward_with_row_sums(Device& device, Accum<T>* d_bias_d, T* d_in_bcd, const T* d_out_bcd, const T* in_bcd,
                                 RowsOf rows) {
  run_gradient_rows(device, d_bias_d, GradientRows<T, ReluGradient>{d_in_bcd, d_out_bcd, in_bcd, rows.D}, rows);
}

ABH_INSTANTIATE(Gpu, relu_forward, relu_backward, relu_backward_with_row_sums)

}  // namespace abh
