#include "layers/adamw.hpp"

#include "cpu/lanes.hpp"
#include "cpu/math.hpp"

namespace abh {

namespace {

// Weights per task: the four arrays of a task fit the L2 cache, and the work is large compared with the task's start.
constexpr Index weights_per_task = 8192;

}  // namespace

template <class Device, class T>
void adamw_update(Device& device, const AdamwUpdate<T>& a) {
  using A = Accum<T>;
  if (__builtin_isnan(a.state->clip_scale)) return;  // a gradient is not finite: no update
  // Complements and products are computed in double, because 1 - 0.99f has a relative error of a millionth.
  const A beta1 = A(a.settings.beta1), beta1_complement = A(1 - a.settings.beta1);
  const A beta2 = A(a.settings.beta2), beta2_complement = A(1 - a.settings.beta2);
  const A epsilon = A(a.settings.epsilon);
  const A clip_scale = A(a.state->clip_scale);
  // Reciprocals, so that the loop multiplies instead of dividing.
  const A mean_correction = A(a.state->first_moment_correction);
  const A square_correction = A(a.state->second_moment_correction);
  const A learning_rate = A(a.state->learning_rate * a.settings.rate);
  const A decay = A(a.state->learning_rate * a.settings.rate * a.settings.weight_decay);

  A* const exact = exact_weights(a.weight, a.master);

  // Captured by value: a value behind a reference would be loaded again after every store.
  parallel_pieces(device, a.count, weights_per_task, [=](Index begin, Index end) {
    for_lanes<T>(end - begin, [=]<class L>(Index offset) {
      const Index i = begin + offset;
      const L gradient = clip_scale * load<L>(a.d_weight + i);                                    // (adamw.1)
      const L first = fused<L>(beta1, load<L>(a.first_moment + i), beta1_complement * gradient);  // (adamw.2)
      const L second =
          fused<L>(beta2, load<L>(a.second_moment + i), beta2_complement * (gradient * gradient));  // (adamw.3)
      const L mean = first * mean_correction;                                                       // (adamw.4)
      const L square = second * square_correction;                                                  // (adamw.5)
      // All loads precede the first store, because for the compiler a store may change any of the arrays.
      const L old = load<L>(exact + i);
      const L direction = mean / (square_root<L>(square) + epsilon);
      const L updated = old - fused<L>(learning_rate, direction, decay * old);  // (adamw.6)
      store<L>(exact + i, updated);
      if constexpr (is_narrow<T>) store<L>(a.weight + i, updated);
      store<L>(a.first_moment + i, first);
      store<L>(a.second_moment + i, second);
    });
  });
}

ABH_INSTANTIATE(Cpu, adamw_update)

}  // namespace abh
