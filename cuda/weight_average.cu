#include "cuda/kernel.hpp"
#include "layers/weight_average.hpp"

namespace abh {

namespace {

constexpr int threads_per_block = 256;

// Averages weights i ... i + width - 1.
template <int width>
__device__ __forceinline__ void update(float* average, const float* weight, double average_share, Index i) {
  const float share = float(average_share);  // (weight_average.1), computed by the host
  const Floats<width> exact = load<width>(weight + i);
  Floats<width> mean = load<width>(average + i);
  for (int v = 0; v < width; ++v) {
    // If the share is 1, the average is a bitwise copy of the weight.
    mean.x[v] = average_share < 1 ? mean.x[v] + share * (exact.x[v] - mean.x[v]) : exact.x[v];  // (weight_average.2)
  }
  store<width>(average + i, mean);
}

// A thread handles `width` adjacent weights; the last thread handles the rest:
//
//   thread    0        1        2     ...
//   weight    0 .. 3   4 .. 7   8 .. 11
//
// Reads 8 bytes per weight and writes 4; every number once.
template <int width>
__global__ void __launch_bounds__(threads_per_block)
    update_kernel(float* average, const float* weight, const StepState* state, Index count) {
  wait_for_kernel_before();
  require_at_most(threads_per_block);
  if (state->clip_scale != state->clip_scale) return;  // NaN: invalid step
  const double share = state->average_share;
  Index i = (Index{blockIdx.x} * threads_per_block + threadIdx.x) * width;
  if (i + width <= count) {
    update<width>(average, weight, share, i);
  } else {
    for (; i < count; ++i) update<1>(average, weight, share, i);
  }
}

}  // namespace

template <class Device, class T>
void weight_average_update(Device& device, Accum<T>* average, const Accum<T>* weight, const StepState* state,
                           Index count) {
  const auto run = [&](auto kernel, int width) {
    launch(kernel, blocks_for(count, Index{width} * threads_per_block), threads_per_block, 0, device.stream(), average,
           weight, state, count);
  };
  // Not every array is aligned for 16-byte accesses.
  constexpr int width = widest<float>;
  widest_fits<float>(width, average, weight) ? run(update_kernel<width>, width) : run(update_kernel<1>, 1);
}

ABH_INSTANTIATE(Gpu, weight_average_update)

}  // namespace abh
