#include <limits>

#include "cuda/kernel.hpp"
#include "layers/global_norm.hpp"

namespace abh {

namespace {

constexpr int threads_per_block = 256;
constexpr int loads = 4;                                      // loads of four elements in flight per thread
constexpr Index turn = Index{4} * loads * threads_per_block;  // elements per iteration of a block
constexpr Index most_parts = 2048;

// Elements per block, by count alone: a multiple of `turn`, with at most 2,048 parts. This saturates any GPU, and one
// block adds the parts quickly.
Index elements_per_part(Index count) {
  const Index turns = (count + turn * most_parts - 1) / (turn * most_parts);
  return turns < 1 ? turn : turns * turn;
}

// sum_p[p] = sum of squares of part p. Grid: one block of 256 threads per part. In every iteration a thread loads four
// times four adjacent elements, 1,024 apart:
//
//   element   0 .. 3 | 4 .. 7 | ... | 1020 .. 1023 | 1024 .. 1027 | ...
//   thread       0   |    1   | ... |       255    |       0      | ...
//
// Reads 4 bytes per element, once. Squares and sums in double: two operations per 4 bytes, so the kernel is
// memory-bound on data-centre GPUs, where double has half the rate of float.
__global__ void __launch_bounds__(threads_per_block)
    squares_kernel(double* sum_p, const float* gradient, Index count, Index per_part, bool aligned) {
  wait_for_kernel_before();
  require_at_most(threads_per_block);
  const Index begin = blockIdx.x * per_part;
  const Index end = begin + per_part < count ? begin + per_part : count;
  double sum = 0;
  for (Index at = begin + 4 * Index{threadIdx.x}; at < end; at += turn) {
    Floats<4> four[loads];
    for (int l = 0; l < loads; ++l) four[l] = load_four(gradient, at + l * (turn / loads), end, aligned);
    for (int l = 0; l < loads; ++l) {
      for (int k = 0; k < 4; ++k) sum += double(four[l].x[k]) * double(four[l].x[k]);
    }
  }
  sum = block_sum<threads_per_block>(sum);
  if (threadIdx.x == 0) sum_p[blockIdx.x] = sum;
}

// One block: thread t adds parts t, t + 256, ..., then the block adds the sums of its threads, in a fixed order.
__global__ void __launch_bounds__(threads_per_block)
    norm_kernel(StepState* state, const double* sum_p, int parts, double clip) {
  wait_for_kernel_before();
  require_at_most(threads_per_block);
  double sum = 0;
  for (int p = int(threadIdx.x); p < parts; p += threads_per_block) sum += sum_p[p];
  sum = block_sum<threads_per_block>(sum);
  if (threadIdx.x > 0) return;

  const double norm = sqrt(sum);  // (global_norm.1)
  double clip_scale = 1;
  if (!(norm <= std::numeric_limits<double>::max())) {  // infinite or NaN
    clip_scale = std::numeric_limits<double>::quiet_NaN();
  } else if (clip > 0 && norm > clip) {
    clip_scale = clip / norm;  // (global_norm.2)
  }
  state->gradient_norm = norm;
  state->clip_scale = clip_scale;
}

}  // namespace

template <class Device, class T>
void global_norm(Device& device, StepState* state, const Accum<T>* gradient, double clip, Index count) {
  const Index per_part = elements_per_part(count);
  const unsigned parts = blocks_for(count, per_part);
  typename Device::Scope scratch(device.workspace);
  double* sum_p = scratch.template take<double>(parts);
  launch(squares_kernel, parts, threads_per_block, 0, device.stream(), sum_p, gradient, count, per_part,
         widest_fits<float>(0, gradient));
  launch(norm_kernel, 1, threads_per_block, 0, device.stream(), state, sum_p, int(parts), clip);
}

ABH_INSTANTIATE(Gpu, global_norm)

}  // namespace abh
