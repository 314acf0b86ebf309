#include "layers/weight_average.hpp"

#include "plain/view.hpp"

namespace abh {

template <class Device, class T>
void weight_average_update(Device&, Accum<T>* average, const Accum<T>* weight, const StepState* state, Index count) {
  using A = Accum<T>;
  if (std::isnan(state->clip_scale)) return;  // invalid step: the weights did not change either
  const A share = A(state->average_share);    // (weight_average.1), which the host has computed
  for (Index i = 0; i < count; ++i) {
    // If the share is 1, the average is a bitwise copy of the weight, without rounding.
    average[i] =
        state->average_share < 1 ? average[i] + share * (weight[i] - average[i]) : weight[i];  // (weight_average.2)
  }
}

ABH_INSTANTIATE(PlainDevice, weight_average_update)

}  // namespace abh
