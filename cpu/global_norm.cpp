#include "layers/global_norm.hpp"

#include "cpu/lanes.hpp"
#include "cpu/math.hpp"

namespace abh {

namespace {

// Elements whose squares one task sums; the sums of the tasks are then added in order.
constexpr Index elements_per_task = 16384;

template <class T>
double sum_of_squares(const T* in, Index count) {
  typedef typename LanesOf<double, lane_width<T>>::type WideDouble;
  WideDouble wide_sum{};
  double scalar_sum = 0;
  for_lanes<T>(count, [&]<class L>(Index i) {
    if constexpr (width_of<L> != 1) {
      using Doubles = typename LanesOf<double, width_of<L>>::type;
      const Doubles x = __builtin_convertvector(load<L>(in + i), Doubles);
      wide_sum += x * x;
    } else {
      const double x = static_cast<double>(in[i]);
      scalar_sum += x * x;
    }
  });
  if constexpr (lane_width<T> != 1) {
    for (int lane = 0; lane < lane_width<T>; ++lane) scalar_sum += wide_sum[lane];
  }
  return scalar_sum;
}

}  // namespace

template <class Device, class T>
void global_norm(Device& device, StepState* state, const Accum<T>* gradient, double clip, Index count) {
  const Index tasks = (count + elements_per_task - 1) / elements_per_task;
  typename Device::Scope scratch(device.workspace);
  double* task_sum = scratch.template take<double>(tasks);
  parallel_for(device, tasks, [&](Index task, Index) {
    const Index begin = task * elements_per_task;
    const Index n = begin + elements_per_task < count ? elements_per_task : count - begin;
    task_sum[task] = sum_of_squares<T>(gradient + begin, n);
  });

  double sum = 0;
  for (Index task = 0; task < tasks; ++task) sum += task_sum[task];
  const double norm = square_root<double>(sum);  // (global_norm.1)
  double clip_scale = 1;
  if (!__builtin_isfinite(norm)) {
    clip_scale = __builtin_nan("");
  } else if (clip > 0 && norm > clip) {
    clip_scale = clip / norm;  // (global_norm.2)
  }
  state->gradient_norm = norm;
  state->clip_scale = clip_scale;
}

#define INSTANTIATE(T) template decltype(global_norm<Cpu, T>) global_norm<Cpu, T>;
ABH_FOR_EACH_SCALAR(INSTANTIATE)

}  // namespace abh
