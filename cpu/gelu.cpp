#include "layers/gelu.hpp"

#include "cpu/lanes.hpp"
#include "cpu/math.hpp"

namespace abh {

namespace {

constexpr Index chunk = 8192;  // elements of a task

constexpr double sqrt_half = 0.70710678118654752440;
constexpr double inv_sqrt_two_pi = 0.39894228040143267794;
constexpr double kappa = 0.79788456080286535588;  // sqrt(2 / pi)
constexpr double alpha = 0.044715;

// The factors below are taken at `in` bounded to +-64: they are 0 or 1 long before, in double too, and an infinite `in`
// would bring infinity times 0.
constexpr double bound = 64;

template <class L>
L bounded(const L& x) {
  using T = ScalarOf<L>;
  return clamped<L>(x, T(-bound), T(bound));
}

template <class L>
L normal_distribution(const L& x) {
  using T = ScalarOf<L>;
  return T(0.5) * (T(1) + error_function<L>(x * T(sqrt_half)));
}

template <class L>
L normal_density(const L& x) {
  using T = ScalarOf<L>;
  return T(inv_sqrt_two_pi) * exponential<L>(T(-0.5) * x * x);
}

template <class L>
L tanh_argument(const L& x) {
  using T = ScalarOf<L>;
  return T(kappa) * (x + T(alpha) * x * x * x);
}

// What `in` is multiplied with.
template <class L>
L gate(const L& in, GeluForm form) {
  using T = ScalarOf<L>;
  const L x = bounded<L>(in);
  if (form == GeluForm::erf) return normal_distribution<L>(x);          // (gelu.1)
  return T(0.5) * (T(1) + hyperbolic_tangent<L>(tanh_argument<L>(x)));  // (gelu.2)
}

template <class L>
L slope(const L& in, GeluForm form) {
  using T = ScalarOf<L>;
  const L x = bounded<L>(in);
  if (form == GeluForm::erf) return normal_distribution<L>(x) + x * normal_density<L>(x);  // (gelu.3)
  const L tau = hyperbolic_tangent<L>(tanh_argument<L>(x));
  const L d_argument = T(kappa) * (T(1) + T(3 * alpha) * x * x);
  return T(0.5) * (T(1) + tau) + T(0.5) * x * (T(1) - tau * tau) * d_argument;  // (gelu.4)
}

// body.operator()<L>(i) for the pieces of [0, count), chunk by chunk. Chunks are whole lanes but for the last one.
template <class T, class Device, class Body>
void parallel_lanes(Device& device, Index count, const Body& body) {
  parallel_for(device, (count + chunk - 1) / chunk, [&](Index task, Index) {
    const Index begin = task * chunk;
    const Index size = begin + chunk < count ? chunk : count - begin;
    for_lanes<T>(size, [&]<class L>(Index i) { body.template operator()<L>(begin + i); });
  });
}

}  // namespace

template <class Device, class T>
void gelu_forward(Device& device, T* out, const T* in, Index count, GeluForm form) {
  parallel_lanes<T>(device, count, [&]<class L>(Index i) {
    const L x = load<L>(in + i);
    // Minus infinity would meet a gate of 0 here; plus infinity meets 1 and stays.
    store<L>(out + i, larger<L>(splat<L>(T(-bound)), x) * gate<L>(x, form));
  });
}

template <class Device, class T>
void gelu_backward(Device& device, T* d_in, const T* d_out, const T* in, Index count, GeluForm form) {
  parallel_lanes<T>(device, count, [&]<class L>(Index i) {
    store<L>(d_in + i, load<L>(d_out + i) * slope<L>(load<L>(in + i), form));
  });
}

#define INSTANTIATE(T)                                          \
  template decltype(gelu_forward<Cpu, T>) gelu_forward<Cpu, T>; \
  template decltype(gelu_backward<Cpu, T>) gelu_backward<Cpu, T>;
ABH_FOR_EACH_SCALAR(INSTANTIATE)

}  // namespace abh
