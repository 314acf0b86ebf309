#include "cuda/kernel.hpp"
#include "layers/gelu.hpp"

namespace abh {

namespace {

constexpr int threads_per_block = 256;

constexpr float sqrt_half = 0.707106781186547524f;
constexpr float inv_sqrt_two_pi = 0.398942280401432678f;
constexpr float kappa = 0.797884560802865356f;  // sqrt(2 / pi)
constexpr float alpha = 0.044715f;

// Gates and slopes are taken at `in` bounded to +-64: they are 0 or 1 long before, and an infinite `in` would bring
// infinity times 0. Comparisons, unlike fminf and fmaxf, let NaN through.
constexpr float bound = 64;
__device__ float at_least_minus_bound(float x) { return x < -bound ? -bound : x; }
__device__ float bounded(float x) { return x > bound ? bound : at_least_minus_bound(x); }

__device__ float normal_distribution(float x) { return 0.5f * (1 + erff(x * sqrt_half)); }
__device__ float normal_density(float x) { return inv_sqrt_two_pi * expf(-0.5f * x * x); }
__device__ float gate_tanh(float x) { return tanhf(kappa * (x + alpha * x * x * x)); }

// The form is known when a kernel is compiled, so that one that takes the error function holds no hyperbolic tangent.
template <GeluForm form>
__device__ float out_of(float in) {
  const float x = bounded(in);
  // Minus infinity would meet a gate of 0; plus infinity meets 1 and stays.
  const float factor = at_least_minus_bound(in);
  if constexpr (form == GeluForm::erf) return factor * normal_distribution(x);  // (gelu.1)
  return factor * (0.5f * (1 + gate_tanh(x)));                                  // (gelu.2)
}

template <GeluForm form>
__device__ float d_in_of(float d_out, float in) {
  const float x = bounded(in);
  if constexpr (form == GeluForm::erf) return d_out * (normal_distribution(x) + x * normal_density(x));  // (gelu.3)
  const float tau = gate_tanh(x);
  const float d_argument = kappa * (1 + 3 * alpha * x * x);
  return d_out * (0.5f * (1 + tau) + 0.5f * x * (1 - tau * tau) * d_argument);  // (gelu.4)
}

// Grid, both ways: one thread for each access of `width` neighbouring elements, 16 bytes where the arrays are aligned.
// The last thread may find fewer than `width` and takes them one by one. Every array is met once, and no thread needs
// another.

template <class T, int width, GeluForm form>
__global__ void forward_kernel(T* out, const T* in, Index count) {
  wait_for_kernel_before();
  const Index first = (Index{blockIdx.x} * threads_per_block + threadIdx.x) * width;
  if (first + width > count) {
    for (Index i = first; i < count; ++i) out[i] = T(out_of<form>(float(in[i])));
    return;
  }
  Floats<width> x = load<width>(in + first);
  for (int i = 0; i < width; ++i) x.x[i] = out_of<form>(x.x[i]);
  store<width>(out + first, x);
}

template <class T, int width, GeluForm form>
__global__ void backward_kernel(T* d_in, const T* d_out, const T* in, Index count) {
  wait_for_kernel_before();
  const Index first = (Index{blockIdx.x} * threads_per_block + threadIdx.x) * width;
  if (first + width > count) {
    for (Index i = first; i < count; ++i) d_in[i] = T(d_in_of<form>(float(d_out[i]), float(in[i])));
    return;
  }
  const Floats<width> x = load<width>(in + first);
  Floats<width> d = load<width>(d_out + first);
  for (int i = 0; i < width; ++i) d.x[i] = d_in_of<form>(d.x[i], x.x[i]);
  store<width>(d_in + first, d);
}

}  // namespace

template <class Device, class T>
void gelu_forward(Device& device, T* out, const T* in, Index count, GeluForm form) {
  const auto run = [&](auto kernel, int width) {
    launch(kernel, blocks_for(count, threads_per_block * width), threads_per_block, 0, device.stream(), out, in, count);
  };
  constexpr int width = widest<T>;
  if (widest_fits<T>(0, out, in)) {
    form == GeluForm::erf ? run(forward_kernel<T, width, GeluForm::erf>, width)
                          : run(forward_kernel<T, width, GeluForm::tanh>, width);
  } else {
    form == GeluForm::erf ? run(forward_kernel<T, 1, GeluForm::erf>, 1) : run(forward_kernel<T, 1, GeluForm::tanh>, 1);
  }
}

template <class Device, class T>
void gelu_backward(Device& device, T* d_in, const T* d_out, const T* in, Index count, GeluForm form) {
  const auto run = [&](auto kernel, int width) {
    launch(kernel, blocks_for(count, threads_per_block * width), threads_per_block, 0, device.stream(), d_in, d_out, in,
           count);
  };
  constexpr int width = widest<T>;
  if (widest_fits<T>(0, d_in, d_out, in)) {
    form == GeluForm::erf ? run(backward_kernel<T, width, GeluForm::erf>, width)
                          : run(backward_kernel<T, width, GeluForm::tanh>, width);
  } else {
    form == GeluForm::erf ? run(backward_kernel<T, 1, GeluForm::erf>, 1)
                          : run(backward_kernel<T, 1, GeluForm::tanh>, 1);
  }
}

#define INSTANTIATE(T)                                          \
  template decltype(gelu_forward<Gpu, T>) gelu_forward<Gpu, T>; \
  template decltype(gelu_backward<Gpu, T>) gelu_backward<Gpu, T>;
ABH_FOR_EACH_NUMBER(INSTANTIATE)

}  // namespace abh
