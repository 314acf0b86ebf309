#include "layers/global_norm.hpp"

#include "plain/view.hpp"

namespace abh {

template <class Device, class T>
void global_norm(Device&, StepState* state, const Accum<T>* gradient, double clip, Index count) {
  double sum = 0;  // double: the square of a float neither overflows nor underflows
  for (Index i = 0; i < count; ++i) sum += static_cast<double>(gradient[i]) * static_cast<double>(gradient[i]);
  const double norm = std::sqrt(sum);                             // (global_norm.1)
  double clip_scale = clip > 0 && norm > clip ? clip / norm : 1;  // (global_norm.2)
  // clip / infinity would be 0 and hide a non-finite gradient.
  if (!std::isfinite(norm)) clip_scale = std::numeric_limits<double>::quiet_NaN();
  state->gradient_norm = norm;
  state->clip_scale = clip_scale;
}

ABH_INSTANTIATE(PlainDevice, global_norm)

}  // namespace abh
