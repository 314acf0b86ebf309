#pragma once

// Elementary functions for lane types: exponential, natural_log, normal_distributions, hyperbolic_tangent, square_root;
// for scalars log_one_plus.
//
// For float of any SIMD width: range reduction and one minimax polynomial, without table or branch. All widths execute
// the same operations in the same order. Scalars other than float (double, in tests Dual) use the library's functions,
// found by argument-dependent lookup. NaN is kept everywhere.
//
// Coefficients: Remez exchange at 40 digits for the relative error of the function (normal_distributions: the absolute
// error), then rounded to float. Those of normal_distributions were then changed by a few units in the last place where
// that reduced the error after rounding. Largest errors in units in the last place, checked by
// tests/layers/test_math.cpp:
//
//   exponential         1.1    subnormal results are rounded once, not flushed: 0 below -103.97; infinity above 88.72
//   normal_distributions 2.1  units of the last place of 1/2, 6e-8; 2 where a product and a sum are one rounding
//   hyperbolic_tangent  1.4
//   natural_log         0.9    base/logarithm.hpp
//   log_one_plus        2.8
//   square_root: that of the machine

#include <cmath>
#include <cstdint>

#include "base/logarithm.hpp"
#include "cpu/lanes.hpp"

namespace abh {
inline namespace ABH_ISA {

template <class T>
inline constexpr bool is_float = false;
template <>
inline constexpr bool is_float<float> = true;

// Vector of as many 32-bit integers as L has floats.
template <class L>
using IntegersOf = typename LanesOf<std::int32_t, width_of<L>>::type;

template <class To, class From>
inline To bits_as(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(To));
  return to;
}

// Adds x to a compensated sum: `low` receives the exact rounding error of `high` (Knuth's two-sum), so high + low has
// about twice the precision.
template <class L>
inline void add_compensated(L& high, L& low, const L& x) {
  const L sum = high + x, added = sum - high;
  low += (high - (sum - added)) + (x - added);
  high = sum;
}
// The same for a pair that is scaled first.
template <class L>
inline void add_compensated_scaled(L& high, L& low, const L& scale, const L& x) {
  const L sum = fused<L>(high, scale, x), added = fused<L>(-high, scale, sum);
  low = fused<L>(low, scale, fused<L>(high, scale, -(sum - added)) + (x - added));
  high = sum;
}

// x limited to two bounds; NaN is kept.
template <class L>
inline L clamped(const L& x, ScalarOf<L> low, ScalarOf<L> high) {
  const L at_least = splat<L>(low) > x ? splat<L>(low) : x;
  return at_least > splat<L>(high) ? splat<L>(high) : at_least;
}

// |x|, and y with the sign of x (y >= 0), by sign bits. Floats only.
template <class L>
inline L magnitude(const L& x) {
  return bits_as<L>(bits_as<IntegersOf<L>>(x) & 0x7fffffff);
}
template <class L>
inline L with_sign_of(const L& y, const L& x) {
  const IntegersOf<L> sign = bits_as<IntegersOf<L>>(x) & std::int32_t{-0x7fffffff - 1};
  return bits_as<L>(bits_as<IntegersOf<L>>(y) | sign);
}

// a if a comparison holds, else b. Through integers: with a plain ?: g++ may split a fused multiply-add at some widths.
template <class L>
inline L where(const IntegersOf<L>& mask, const L& a, const L& b) {
  return bits_as<L>((bits_as<IntegersOf<L>>(a) & mask) | (bits_as<IntegersOf<L>>(b) & ~mask));
}
template <class L>
inline IntegersOf<L> less(const L& a, ScalarOf<L> b) {
  if constexpr (width_of<L> == 1) {
    return -std::int32_t{a < b};
  } else {
    return a < splat<L>(b);
  }
}

// coefficients[0] + coefficients[1] x + ..., by Horner's rule.
template <class L, int count>
inline L polynomial(const L& x, const float (&coefficients)[count]) {
  L sum = splat<L>(coefficients[count - 1]);
  for (int i = count - 2; i >= 0; --i) sum = fused<L>(sum, x, coefficients[i]);
  return sum;
}

// e^x as a product of two factors, for a caller that adds to it.
template <class L>
struct Exponential {
  L power, scale;
};
template <class L>
inline Exponential<L> exponential_factors(const L& x) {
  if constexpr (is_float<ScalarOf<L>>) {
    // x = n log 2 + r with |r| <= log(2) / 2. Adding 1.5 * 2^23 rounds to an integer, which is then in the low bits.
    constexpr float round = 12582912.0f;
    constexpr float log2_high = 0.693359375f;  // 9 bits: the product with n is exact
    constexpr float log2_low = -2.12194440e-4f;
    constexpr float coefficients[] = {0.499999930507f, 0.166665147914f, 0.0416684567868f, 0.0083694188354f,
                                      0.00138131446827f};
    const L bounded = clamped<L>(x, -104.5f, 89.0f);
    const L shifted = fused<L>(bounded, 1.44269504f, round);
    const L n = shifted - round;
    const L r = fused<L>(n, -log2_low, fused<L>(n, -log2_high, bounded));
    const L power = fused<L>(polynomial<L>(r, coefficients), r * r, r) + 1.0f;
    // 2^n as two factors: both are normal numbers, so only the last product can overflow or become subnormal.
    const IntegersOf<L> exponent = bits_as<IntegersOf<L>>(shifted) - bits_as<std::int32_t>(round);
    const IntegersOf<L> half = exponent >> 1;
    return {power * bits_as<L>((half + 127) << 23), bits_as<L>((exponent - half + 127) << 23)};
  } else {
    using std::exp;
    return {exp(x), L(1)};
  }
}
template <class L>
inline L exponential(const L& x) {
  const Exponential<L> factors = exponential_factors<L>(x);
  return factors.power * factors.scale;
}

// Scalar per lane, because it is called once per row, not once per element.
template <class L>
inline L natural_log(const L& x) {
  if constexpr (is_float<L>) {
    return logarithm(x);
  } else if constexpr (is_float<ScalarOf<L>>) {
    L result;
    for (int i = 0; i < width_of<L>; ++i) result[i] = logarithm(x[i]);
    return result;
  } else {
    using std::log;
    return log(x);
  }
}

// log(1 + x) of a scalar x >= 0.
template <class T>
inline T log_one_plus(const T& x) {
  if constexpr (is_float<T>) {
    // The sum is rounded: the lost part of x is restored by a factor.
    const float sum = 1 + x, kept = sum - 1;
    if (kept == x) return logarithm(sum);
    return kept > 0 ? logarithm(sum) * (x / kept) : x;
  } else {
    using std::log1p;
    return log1p(x);
  }
}

// 1/2 + x P(center - x^2), and 0 or 1 from x^2 = end on: for functions that rise from 0 to 1 and are odd after
// subtracting 1/2. Floats only. The ends are selected, not computed, so infinity is handled. `group` independent
// vectors hide the latency of the polynomial.
template <class L, int group, int count>
inline void odd_steps(L (&step)[group], const L (&x)[group], float center, float end,
                      const float (&coefficients)[count]) {
  L from_center[group], sum[group];
  for (int g = 0; g < group; ++g) {
    from_center[g] = fused<L>(-x[g], x[g], center);
    sum[g] = splat<L>(coefficients[count - 1]);
  }
  for (int i = count - 2; i >= 0; --i) {
    for (int g = 0; g < group; ++g) sum[g] = fused<L>(sum[g], from_center[g], coefficients[i]);
  }
  for (int g = 0; g < group; ++g) {
    const L limit = with_sign_of<L>(splat<L>(0.5f), x[g]);
    step[g] = 0.5f + where<L>(less<L>(from_center[g], center - end), limit, x[g] * sum[g]);
  }
}

// Distribution function of the standard normal distribution.
template <class L, int group>
inline void normal_distributions(L (&phi)[group], const L (&x)[group]) {
  if constexpr (is_float<ScalarOf<L>>) {
    // One polynomial in x^2 without exponential, fitted up to x = 5.4. Its center is the middle of that range;
    // otherwise its terms would cancel.
    constexpr float coefficients[] = {0.126989648f,    0.00409089588f,  0.000196561508f, 1.03370385e-05f,
                                      5.54589406e-07f, 2.93048767e-08f, 1.49594126e-09f, 7.26645272e-11f,
                                      3.24870729e-12f, 1.35710128e-13f, 6.16432124e-15f, 2.56854297e-16f,
                                      4.86471949e-18f, 7.29640056e-20f, 1.53605081e-20f, 5.85186259e-22f};
    odd_steps(phi, x, 15.5f, 29.16f, coefficients);
  } else {
    using std::erf;
    constexpr double sqrt_half = 0.70710678118654752440;
    for (int g = 0; g < group; ++g) phi[g] = L(0.5) * (L(1) + erf(x[g] * L(sqrt_half)));
  }
}

template <class L>
inline L hyperbolic_tangent(const L& x) {
  if constexpr (is_float<ScalarOf<L>>) {
    // Below 0.625, where 1 - 2 / (exp(2 |x|) + 1) would cancel: x + x^3 P(x^2).
    constexpr float near[] = {-0.333332819422f, 0.133314422011f, -0.0537397152183f, 0.020639087393f,
                              -0.00570498692536f};
    const L size = magnitude<L>(x);
    const L square = size * size;
    const L small = fused<L>(size * square, polynomial<L>(square, near), size);
    const Exponential<L> e = exponential_factors<L>(size + size);
    const L large = 1.0f - 2.0f / fused<L>(e.power, e.scale, 1.0f);
    return with_sign_of<L>(where<L>(less<L>(size, 0.625f), small, large), x);
  } else {
    using std::tanh;
    return tanh(x);
  }
}

template <class L>
inline L square_root(const L& x) {
  if constexpr (width_of<L> == 1) {
    using std::sqrt;
    return sqrt(x);
  } else {
    L root;
    for (int i = 0; i < width_of<L>; ++i) root[i] = __builtin_sqrtf(x[i]);
    return root;
  }
}

}  // namespace ABH_ISA
}  // namespace abh
