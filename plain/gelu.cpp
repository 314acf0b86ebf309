#include "layers/gelu.hpp"

#include "plain/view.hpp"

namespace abh {

namespace {

constexpr double inv_sqrt_two_pi = 0.39894228040143267794;
constexpr double sqrt_half = 0.70710678118654752440;
constexpr double kappa = 0.79788456080286535588;  // sqrt(2 / pi)
constexpr double alpha = 0.044715;

// Beyond +-64 every factor equals its limit. Without the bound, x = infinity would give infinity * 0. NaN is kept.
template <class T>
T bounded(T x) {
  return x < T(-64) ? T(-64) : x > T(64) ? T(64) : x;
}

template <class T>
T normal_distribution(T x) {  // Phi, values from 0 to 1
  return (T(1) + erf(x * T(sqrt_half))) / T(2);
}
template <class T>
T normal_density(T x) {  // phi, the derivative of Phi
  return T(inv_sqrt_two_pi) * exp(-x * x / T(2));
}
template <class T>
T tau(T x) {
  return tanh(T(kappa) * (x + T(alpha) * x * x * x));
}

}  // namespace

template <class Device, class T>
void gelu_forward(Device&, T* out, const T* in, Index count, GeluForm form) {
  using A = Accum<T>;
  for (Index i = 0; i < count; ++i) {
    const A x = bounded(in[i]), rest = in[i] > x ? in[i] - x : A(0);  // the part of in above 64 is added unchanged
    if (form == GeluForm::erf) {
      out[i] = x * normal_distribution(x) + rest;  // (gelu.1)
    } else {
      out[i] = x / A(2) * (A(1) + tau(x)) + rest;  // (gelu.2)
    }
  }
}

template <class Device, class T>
void gelu_backward(Device&, T* d_in, const T* d_out, const T* in, Index count, GeluForm form) {
  using A = Accum<T>;
  for (Index i = 0; i < count; ++i) {
    const A x = bounded(in[i]), t = tau(x);  // beyond +-64 the derivative is constant
    if (form == GeluForm::erf) {
      d_in[i] = d_out[i] * (normal_distribution(x) + x * normal_density(x));  // (gelu.3)
    } else {
      // Product rule; the derivative of tau is 1 - tau^2 times the derivative of its argument.
      const A d_argument = A(kappa) * (A(1) + A(3 * alpha) * x * x);
      d_in[i] = d_out[i] * ((A(1) + t) / A(2) + x / A(2) * (A(1) - t * t) * d_argument);  // (gelu.4)
    }
  }
}

ABH_INSTANTIATE(PlainDevice, gelu_forward, gelu_backward)

}  // namespace abh
