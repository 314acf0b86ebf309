#include "layers/global_norm.hpp"

#include "cpu/lanes.hpp"
#include "cpu/math.hpp"

namespace abh {

namespace {

// Elements per task; the sums of squares of the tasks are then added in order.
constexpr Index elements_per_task = 16384;

// A vector of doubles holds half as many numbers as one of floats. `group` independent sums hide the latency of an
// addition.
template <class T>
double sum_of_squares(const T* in, Index count) {
  double sum = 0;
  Index i = 0;
  if constexpr (lane_width < T >> 1) {
    constexpr int group = 8, width = lane_width<T> / 2;
    using Doubles = typename LanesOf<double, width>::type;
    Doubles sums[group] = {};
    for (; i + group * width <= count; i += group * width) {
      for (int g = 0; g < group; ++g) {
        Doubles x;
        for (int lane = 0; lane < width; ++lane) x[lane] = static_cast<double>(in[i + g * width + lane]);
        sums[g] += x * x;
      }
    }
    for (int g = 0; g < group; ++g) {
      for (int lane = 0; lane < width; ++lane) sum += sums[g][lane];
    }
  }
  for (; i < count; ++i) {
    const double x = static_cast<double>(in[i]);
    sum += x * x;
  }
  return sum;
}

}  // namespace

template <class Device, class T>
void global_norm(Device& device, StepState* state, const Accum<T>* gradient, double clip, Index count) {
  using A = Accum<T>;
  const Index tasks = blocks_of(count, elements_per_task);
  typename Device::Scope scratch(device.workspace);
  double* task_sum = scratch.template take<double>(tasks);
  parallel_pieces(device, count, elements_per_task, [&](Index begin, Index end) {
    task_sum[begin / elements_per_task] = sum_of_squares<A>(gradient + begin, end - begin);
  });

  // Added in the order of the tasks, for any assignment to threads. The scale multiplies every gradient, so it must not
  // depend on the number of threads.
  on_one_thread(device, [&] {
    double sum = 0;
    for (Index task = 0; task < tasks; ++task) sum += task_sum[task];
    const double norm = square_root<double>(sum);  // (global_norm.1)
    double clip_scale = 1;
    if (!__builtin_isfinite(norm)) {
      clip_scale = __builtin_nan("");  // clip / infinity is 0 and would hide a non-finite gradient
    } else if (clip > 0 && norm > clip) {
      clip_scale = clip / norm;  // (global_norm.2)
    }
    state->gradient_norm = norm;
    state->clip_scale = clip_scale;
  });
}

ABH_INSTANTIATE(Cpu, global_norm)

}  // namespace abh
