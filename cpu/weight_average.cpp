#include "layers/weight_average.hpp"

#include "cpu/lanes.hpp"
#include "cpu/math.hpp"

namespace abh {

namespace {

// Weights per task: the two arrays of a task fit the L2 cache, and the work is large compared with the task's start.
constexpr Index weights_per_task = 16384;

}  // namespace

template <class Device, class T>
void weight_average_update(Device& device, Accum<T>* average, const Accum<T>* weight, const StepState* state,
                           Index count) {
  using A = Accum<T>;
  if (__builtin_isnan(state->clip_scale)) return;  // invalid step: no update
  const A share = A(state->average_share);         // (weight_average.1), computed by the host
  const bool keeps = state->average_share < 1;     // false: the average is a bitwise copy of the weight

  parallel_pieces(device, count, weights_per_task, [=](Index begin, Index end) {
    for_lanes<T>(end - begin, [=]<class L>(Index offset) {
      const Index i = begin + offset;
      const L exact = load<L>(weight + i), old = load<L>(average + i);
      store<L>(average + i, keeps ? fused<L>(share, exact - old, old) : exact);  // (weight_average.2)
    });
  });
}

ABH_INSTANTIATE(Cpu, weight_average_update)

}  // namespace abh
