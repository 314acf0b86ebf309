#include "cuda/gemm/tensor_core.hpp"
#include "cuda/kernel.hpp"
#include "cuda/row_sums.hpp"
#include "layers/gelu.hpp"
#include "layers/parts/with_row_sums.hpp"

namespace abh {

namespace {

constexpr int threads_per_block = 256;

constexpr float inv_sqrt_two_pi = 0.398942280401432678f;
constexpr float half_log2_e = 0.721347520444481704f;
constexpr float kappa = 0.797884560802865356f;  // sqrt(2 / pi)
constexpr float alpha = 0.044715f;

// Gates and slopes use `in` bounded to +-64: they reach 0 or 1 long before, and an infinite `in` would give infinity *
// 0. Comparisons, unlike fminf and fmaxf, keep NaN.
constexpr float bound = 64;
__device__ float at_least_minus_bound(float x) { return x < -bound ? -bound : x; }
__device__ float bounded(float x) { return x > bound ? bound : at_least_minus_bound(x); }
__device__ float bounded_size(float x) { return fabsf(x) > bound ? bound : fabsf(x); }

// Phi(-size) for size >= 0, the tail probability of the standard normal distribution. Its base-2 logarithm is nearly a
// parabola, so one polynomial covers all sizes. It is -1 at 0, where the gate is 1/2. It was fitted from 0 to 9 by the
// Remez algorithm with weight Phi(-size), for the least absolute error of Phi: 8e-9. The last coefficient is negative,
// so for larger sizes the power tends to 0.
__device__ float normal_tail(float size) {
  constexpr float coefficients[] = {-1.0f,           -1.151105205f,     -0.4592081967f,    -0.05249617853f,
                                    0.00706342132f,  -0.0001369381263f, -0.0001861791437f, 3.937738246e-5f,
                                    -2.834880773e-6f};
  constexpr int degree = 8;
  float log2_tail = coefficients[degree];
  ABH_UNROLL(degree)
  for (int i = degree - 1; i >= 0; --i) log2_tail = log2_tail * size + coefficients[i];
  return power_of_2(log2_tail);
}
__device__ float normal_density(float x) { return inv_sqrt_two_pi * power_of_2(-half_log2_e * x * x); }

__device__ float gate_tanh(float x) { return tanhf(kappa * (x + alpha * x * x * x)); }

// The form is a template argument, so that the erf form contains no tanh code. Values at -|in| give those at `in` by
// symmetry: Phi(x) = 1 - Phi(-x), and the slopes at x and -x sum to 1.
template <GeluForm form>
__device__ float out_of(float in) {
  if constexpr (form == GeluForm::erf) {
    const float size = bounded_size(in);
    return (in < 0 ? 0 : in) - size * normal_tail(size);  // (gelu.1)
  }
  // -infinity * 0 would be NaN; +infinity is multiplied by 1.
  return at_least_minus_bound(in) * (0.5f * (1 + gate_tanh(bounded(in))));  // (gelu.2)
}

template <GeluForm form>
__device__ float d_in_of(float d_out, float in) {
  if constexpr (form == GeluForm::erf) {
    const float size = bounded_size(in);
    const float slope = normal_tail(size) - size * normal_density(size);
    return d_out * (in < 0 ? slope : 1 - slope);  // (gelu.3)
  }
  const float x = bounded(in);
  const float tau = gate_tanh(x);
  const float d_argument = kappa * (1 + 3 * alpha * x * x);
  return d_out * (0.5f * (1 + tau) + 0.5f * x * (1 - tau * tau) * d_argument);  // (gelu.4)
}

// Grid, both passes: a thread has `accesses` accesses of `width` adjacent elements (16 bytes if the arrays are
// aligned), which are as far apart as the elements of its whole block. It loads all of them before it computes. The
// last block may be incomplete and processes them one by one. Every array is read or written once; threads do not
// communicate.
constexpr int accesses = 2;

// Blocks per SM, which allows 40 registers per thread. Without this bound the compiler uses only 32. To save registers
// it then delays loads of backward until half of the results are computed.
[[maybe_unused]] constexpr int blocks_at_once = 6;

template <int width>
inline constexpr int elements_per_block = threads_per_block* accesses* width;

// Start of access n of this thread, counted from the first element of its block.
template <int width>
__device__ int first_of(int n) {
  return (n * threads_per_block + int(threadIdx.x)) * width;
}

template <class T, int width, GeluForm form>
__global__ void __launch_bounds__(threads_per_block, blocks_at_once) forward_kernel(T* out, const T* in, Index count) {
  wait_for_kernel_before();
  require_at_most(threads_per_block);
  const Index begin = Index{blockIdx.x} * elements_per_block<width>;
  if (count - begin < elements_per_block<width>) {
    for (Index i = begin + threadIdx.x; i < count; i += threads_per_block) out[i] = T(out_of<form>(float(in[i])));
    return;
  }
  in += begin;
  out += begin;
  Words<T, width> ins[accesses];
  ABH_UNROLL(accesses)
  for (int n = 0; n < accesses; ++n) ins[n] = load_words<width>(in + first_of<width>(n));
  ABH_UNROLL(accesses)
  for (int n = 0; n < accesses; ++n) {
    Floats<width> x = floats_of<T, width>(ins[n]);
    for (int i = 0; i < width; ++i) x.x[i] = out_of<form>(x.x[i]);
    store<width>(out + first_of<width>(n), x);
  }
}

template <class T, int width, GeluForm form>
__global__ void __launch_bounds__(threads_per_block, blocks_at_once)
    backward_kernel(T* d_in, const T* d_out, const T* in, Index count) {
  wait_for_kernel_before();
  require_at_most(threads_per_block);
  const Index begin = Index{blockIdx.x} * elements_per_block<width>;
  if (count - begin < elements_per_block<width>) {
    for (Index i = begin + threadIdx.x; i < count; i += threads_per_block) {
      d_in[i] = T(d_in_of<form>(float(d_out[i]), float(in[i])));
    }
    return;
  }
  in += begin;
  d_out += begin;
  d_in += begin;
  Words<T, width> ins[accesses], d_outs[accesses];
  ABH_UNROLL(accesses)
  for (int n = 0; n < accesses; ++n) {
    ins[n] = load_words<width>(in + first_of<width>(n));
    d_outs[n] = load_words<width>(d_out + first_of<width>(n));
  }
  ABH_UNROLL(accesses)
  for (int n = 0; n < accesses; ++n) {
    const Floats<width> x = floats_of<T, width>(ins[n]);
    Floats<width> d = floats_of<T, width>(d_outs[n]);
    for (int i = 0; i < width; ++i) d.x[i] = d_in_of<form>(d.x[i], x.x[i]);
    store<width>(d_in + first_of<width>(n), d);
  }
}

template <GeluForm form>
struct Gradient {
  __device__ static float of(float d_out, float in) { return d_in_of<form>(d_out, in); }
};

}  // namespace

template <class Device, class T>
void gelu_forward(Device& device, T* out, const T* in, Index count, GeluForm form) {
  const auto run = [&](auto kernel, int width) {
    launch(kernel, blocks_for(count, threads_per_block * accesses * width), threads_per_block, 0, device.stream(), out,
           in, count);
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
    launch(kernel, blocks_for(count, threads_per_block * accesses * width), threads_per_block, 0, device.stream(), d_in,
           d_out, in, count);
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

template <class Device, class T>
void gelu_backward_with_row_sums(Device& device, Accum<T>* d_bias_d, T* d_in_bcd, const T* d_out_bcd, const T* in_bcd,
                                 RowsOf rows, GeluForm form) {
  const auto run = [&]<GeluForm known>() {
    run_gradient_rows(device, d_bias_d, GradientRows<T, Gradient<known>>{d_in_bcd, d_out_bcd, in_bcd, rows.D}, rows);
  };
  form == GeluForm::erf ? run.template operator()<GeluForm::erf>() : run.template operator()<GeluForm::tanh>();
}

ABH_INSTANTIATE(Gpu, gelu_forward, gelu_backward, gelu_backward_with_row_sums)

}  // namespace abh
