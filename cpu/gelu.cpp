#include "layers/gelu.hpp"

#include "cpu/lanes.hpp"
#include "cpu/math.hpp"

namespace abh {

namespace {

constexpr Index chunk = 8192;  // elements per task

constexpr double inv_sqrt_two_pi = 0.39894228040143267794;
constexpr double kappa = 0.79788456080286535588;  // sqrt(2 / pi)
constexpr double alpha = 0.044715;

// The factors below use `in` bounded to +-64: they reach 0 or 1 long before, also in double, and an infinite `in` would
// give infinity * 0.
constexpr double bound = 64;

template <class L>
L bounded(const L& x) {
  using T = ScalarOf<L>;
  return clamped<L>(x, T(-bound), T(bound));
}

template <class L>
L normal_density(const L& x) {
  using T = ScalarOf<L>;
  return T(inv_sqrt_two_pi) * exponential<L>(T(-0.5) * x * x);
}

template <class L>
L tanh_argument(const L& x) {
  using T = ScalarOf<L>;
  return T(kappa) * fused<L>(T(alpha) * x * x, x, x);
}

// Factor of `in`. In float, Phi is a polynomial that selects 0 or 1 at its ends (cpu/math.hpp), so the input needs no
// bound.
template <class L, int group>
void gates(L (&gate)[group], const L (&in)[group], GeluForm form) {
  using T = ScalarOf<L>;
  if (form == GeluForm::erf) return normal_distributions<L>(gate, in);  // (gelu.1), without the factor in
  for (int g = 0; g < group; ++g) {
    gate[g] = T(0.5) * (T(1) + hyperbolic_tangent<L>(tanh_argument<L>(bounded<L>(in[g]))));  // (gelu.2)
  }
}

template <class L, int group>
void slopes(L (&slope)[group], const L (&in)[group], GeluForm form) {
  using T = ScalarOf<L>;
  if (form == GeluForm::erf) {
    if constexpr (is_float<T>) {
      // Phi(x) + x phi(x) as one polynomial like that of Phi, fitted up to x = 5.7.
      constexpr float coefficients[] = {
          0.127161458f,    0.00417680666f,  0.000218052635f, 1.39191661e-05f, 1.00112209e-06f, 7.39211075e-08f,
          5.25731858e-09f, 3.42869788e-10f, 1.93927357e-11f, 1.00297537e-12f, 5.64168429e-14f, 2.84331977e-15f,
          7.74857799e-17f, 1.18441614e-18f, 1.47871912e-19f, 9.82525616e-21f, 1.89839352e-22f};
      odd_steps(slope, in, 15.5f, 32.49f, coefficients);  // (gelu.3): Phi and x phi in one
    } else {
      L x[group];
      for (int g = 0; g < group; ++g) x[g] = bounded<L>(in[g]);
      normal_distributions<L>(slope, x);
      for (int g = 0; g < group; ++g) slope[g] += x[g] * normal_density<L>(x[g]);  // (gelu.3)
    }
    return;
  }
  for (int g = 0; g < group; ++g) {
    const L x = bounded<L>(in[g]);
    const L tau = hyperbolic_tangent<L>(tanh_argument<L>(x));
    const L d_argument = T(kappa) * fused<L>(T(3 * alpha) * x, x, T(1));
    slope[g] = fused<L>(T(0.5), T(1) + tau, T(0.5) * x * fused<L>(-tau, tau, T(1)) * d_argument);  // (gelu.4)
  }
}

template <class L, int group, class T>
void load_group(L (&to)[group], const T* from) {
  for (int g = 0; g < group; ++g) to[g] = load<L>(from + g * width_of<L>);
}

// Calls body.operator()<L, group>(i) for pieces of [0, count), `group` consecutive L at a time, chunk by chunk. All
// chunks except the last consist of whole groups.
template <class T, class Device, class Body>
void parallel_lanes(Device& device, Index count, const Body& body) {
  parallel_pieces(device, count, chunk, [=](Index begin, Index end) {
    constexpr int group = 4;
    constexpr Index group_width = group * lane_width<T>;
    const Index grouped = (end - begin) / group_width * group_width;
    for (Index i = 0; i < grouped; i += group_width) body.template operator()<Wide<T>, group>(begin + i);
    for_lanes<T>(end - begin - grouped, [=]<class L>(Index i) { body.template operator()<L, 1>(begin + grouped + i); });
  });
}

}  // namespace

template <class Device, class T>
void gelu_forward(Device& device, T* out, const T* in, Index count, GeluForm form) {
  using A = Accum<T>;
  parallel_lanes<T>(device, count, [=]<class L, int group>(Index i) {
    L x[group], gate[group];
    load_group<L>(x, in + i);
    gates<L>(gate, x, form);
    // -infinity * 0 would be NaN here; +infinity is multiplied by 1.
    for (int g = 0; g < group; ++g) {
      store<L>(out + i + g * width_of<L>, larger<L>(splat<L>(A(-bound)), x[g]) * gate[g]);
    }
  });
}

template <class Device, class T>
void gelu_backward(Device& device, T* d_in, const T* d_out, const T* in, Index count, GeluForm form) {
  parallel_lanes<T>(device, count, [=]<class L, int group>(Index i) {
    L x[group], y[group], slope[group];
    load_group<L>(x, in + i);
    load_group<L>(y, d_out + i);
    slopes<L>(slope, x, form);
    for (int g = 0; g < group; ++g) store<L>(d_in + i + g * width_of<L>, y[g] * slope[g]);
  });
}

ABH_INSTANTIATE(Cpu, gelu_forward, gelu_backward)

}  // namespace abh
