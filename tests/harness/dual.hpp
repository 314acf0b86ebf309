#pragma once

// Forward-mode automatic differentiation: a value and its derivative in one direction pass through every operation. It
// shares no code with the backward passes, so it checks them independently, and exactly up to rounding.

#include <cmath>
#include <compare>
#include <numbers>
#include <type_traits>

namespace abh {

struct Dual {
  double value = 0;
  double derivative = 0;

  Dual() = default;
  template <class Number>
  requires std::is_arithmetic_v<Number> Dual(Number x)
      : value(static_cast<double>(x)) {}  // NOLINT: constants take part in arithmetic as for double
  Dual(double x, double dx) : value(x), derivative(dx) {}
  explicit operator double() const { return value; }
  explicit operator float() const { return static_cast<float>(value); }

  Dual& operator+=(Dual b) { return *this = {value + b.value, derivative + b.derivative}; }
  Dual& operator-=(Dual b) { return *this = {value - b.value, derivative - b.derivative}; }
  Dual& operator*=(Dual b) { return *this = {value * b.value, derivative * b.value + value * b.derivative}; }
  Dual& operator/=(Dual b) {
    const double quotient = value / b.value;
    return *this = {quotient, (derivative - quotient * b.derivative) / b.value};
  }
  friend Dual operator+(Dual a, Dual b) { return a += b; }
  friend Dual operator-(Dual a, Dual b) { return a -= b; }
  friend Dual operator*(Dual a, Dual b) { return a *= b; }
  friend Dual operator/(Dual a, Dual b) { return a /= b; }
  friend Dual operator-(Dual a) { return {-a.value, -a.derivative}; }
  friend bool operator==(Dual a, Dual b) { return a.value == b.value; }
  friend auto operator<=>(Dual a, Dual b) { return a.value <=> b.value; }
};

inline Dual sqrt(Dual x) {
  const double root = std::sqrt(x.value);
  return {root, x.derivative / (2 * root)};
}
inline Dual exp(Dual x) {
  const double power = std::exp(x.value);
  return {power, power == 0 ? 0 : power * x.derivative};  // exp(-inf) is constant 0 for any derivative
}
inline Dual log(Dual x) { return {std::log(x.value), x.derivative / x.value}; }
inline Dual log1p(Dual x) { return {std::log1p(x.value), x.derivative / (1 + x.value)}; }
inline Dual tanh(Dual x) {
  const double y = std::tanh(x.value);
  return {y, (1 - y * y) * x.derivative};
}
inline Dual erf(Dual x) {
  return {std::erf(x.value), 2 * std::numbers::inv_sqrtpi * std::exp(-x.value * x.value) * x.derivative};
}
inline bool isfinite(Dual x) { return std::isfinite(x.value) && std::isfinite(x.derivative); }

}  // namespace abh
