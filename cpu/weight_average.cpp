#include "layers/weight_average.hpp"

#include "cpu/lanes.hpp"
#include "cpu/math.hpp"

namespace abh {

namespace {

// Weights that one task averages: two arrays of it fit a second-level cache, and a task outlasts its own start.
constexpr Index weights_per_task = 16384;

}  // namespace

template <class Device, class T>
void weight_average_update(Device& device, Accum<T>* average, const Accum<T>* weight, const StepState* state,
                           Index count) {
  using A = Accum<T>;
  if (__builtin_isnan(state->clip_scale)) return;  // a broken step: nothing changes
  const A share = A(state->average_share);         // (weight_average.1), by the host
  const bool keeps = state->average_share < 1;     // something of the average; else it is the weight, bit by bit

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
