#include "layers/adamw.hpp"

#include "plain/view.hpp"

namespace abh {

template <class Device, class T>
void adamw_update(Device&, const AdamwUpdate<T>& a) {
  using A = Accum<T>;
  const StepState& state = *a.state;
  if (std::isnan(state.clip_scale)) return;  // a gradient is not finite: neither weights nor moments change
  // Complements and products are computed in double, because 1 - 0.99f has a relative error of a millionth.
  const A beta1 = A(a.settings.beta1), complement1 = A(1 - a.settings.beta1);
  const A beta2 = A(a.settings.beta2), complement2 = A(1 - a.settings.beta2);
  const A epsilon = A(a.settings.epsilon);
  // Weight decay is not part of the gradient: otherwise it would also be divided by the root of the second moment.
  const double rate = state.learning_rate * a.settings.rate;
  const A learning_rate = A(rate), decay = A(rate * a.settings.weight_decay);

  // Each weight is updated independently. The host has computed the reciprocals of the bias corrections once per step.
  // Epsilon is added after the root, so it is compared with a gradient, not with the square of a gradient.
  for (Index i = 0; i < a.count; ++i) {
    const A gradient = A(state.clip_scale) * a.d_weight[i];                                 // (adamw.1)
    a.first_moment[i] = beta1 * a.first_moment[i] + complement1 * gradient;                 // (adamw.2)
    a.second_moment[i] = beta2 * a.second_moment[i] + complement2 * (gradient * gradient);  // (adamw.3)
    const A mean = a.first_moment[i] * A(state.first_moment_correction);                    // (adamw.4)
    const A square = a.second_moment[i] * A(state.second_moment_correction);                // (adamw.5)
    const A weight = a.master ? a.master[i] : A(a.weight[i]);
    const A updated = weight - (learning_rate * (mean / (sqrt(square) + epsilon)) + decay * weight);  // (adamw.6)
    if (a.master) a.master[i] = updated;
    a.weight[i] = updated;
  }
}

ABH_INSTANTIATE(PlainDevice, adamw_update)

}  // namespace abh
