#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <string>
#include <utility>

#include "cpu/math.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/dual.hpp"

// This file is compiled for the baseline. The polynomials are run at width 1 and at the baseline's width; the wider
// sets, where products and sums are fused, run them through the grid of test_gelu.cpp.

namespace abh {
namespace {

using Lanes = Wide<float>;
constexpr int width = lane_width<float>;

struct Function {
  std::string name;
  double tolerance;  // units in the last place, of results of at least `least`
  double (*reference)(double);
  float (*scalar)(const float&);
  Lanes (*wide)(const Lanes&);
  double least = 0;
};

double normal_distribution_reference(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }

template <class L>
L normal_distribution(const L& x) {
  const L in[] = {x};
  L phi[1];
  normal_distributions<L>(phi, in);
  return phi[0];
}

const Function functions[] = {
    {"exponential", 1.1, std::exp, exponential<float>, exponential<Lanes>},
    {"normal_distributions", 2.1, normal_distribution_reference, normal_distribution<float>, normal_distribution<Lanes>,
     0.5},
    {"hyperbolic_tangent", 1.4, std::tanh, hyperbolic_tangent<float>, hyperbolic_tangent<Lanes>},
    {"natural_log", 1.0, std::log, natural_log<float>, natural_log<Lanes>},
    {"square_root", 0.5, std::sqrt, square_root<float>, square_root<Lanes>},
};

// The distance between two floats at x; among subnormal numbers it no longer shrinks.
double last_place(double x) {
  int exponent = 0;
  std::frexp(x, &exponent);
  return std::ldexp(1.0, std::max(exponent, -125) - 24);
}

// In units in the last place; infinity where one is NaN or infinite and the other is not.
double error_of(float got, double reference, double least) {
  const float rounded = static_cast<float>(reference);
  if (std::isnan(got) || std::isnan(rounded)) return std::isnan(got) == std::isnan(rounded) ? 0 : HUGE_VAL;
  if (std::isinf(got) || std::isinf(rounded)) return got == rounded ? 0 : HUGE_VAL;
  return std::abs(got - reference) / last_place(std::max(std::abs(reference), least));
}

// Bit patterns of all floats of both signs in steps of `step`, NaN included.
template <class Body>
void sweep(std::uint64_t step, const Body& body) {
  for (std::uint64_t bits = 0; bits <= 0xffffffffu; bits += step) {
    body(bits_as<float>(static_cast<std::uint32_t>(bits)));
  }
}

void check_errors(std::uint64_t step) {
  for (const Function& f : functions) {
    double worst = 0;
    float worst_x = 0;
    sweep(step, [&](float x) {
      const double error = error_of(f.scalar(x), f.reference(x), f.least);
      if (!(error <= worst)) {
        worst = error;
        worst_x = x;
      }
    });
    INFO(f.name << ": " << worst << " ulp at " << worst_x);
    CHECK_FALSE(!(worst <= f.tolerance));
  }
}

TEST_CASE("elementary functions of floats are within their stated errors, sampled", "[math]") { check_errors(4099); }

TEST_CASE("elementary functions of floats are within their stated errors, densely", "[math][slow]") {
  check_errors(251);
}

TEST_CASE("elementary functions have the same bits at every SIMD width", "[math]") {
  for (const Function& f : functions) {
    std::uint64_t different = 0;
    float example = 0;
    float lanes[width];
    int filled = 0;
    sweep(4127, [&](float x) {
      lanes[filled++] = x;
      if (filled < width) return;
      filled = 0;
      float results[width];
      store<Lanes>(results, f.wide(load<Lanes>(lanes)));
      for (int i = 0; i < width; ++i) {
        const float alone = f.scalar(lanes[i]);
        if (bits_as<std::uint32_t>(alone) == bits_as<std::uint32_t>(results[i])) continue;
        if (std::isnan(alone) && std::isnan(results[i])) continue;
        ++different;
        example = lanes[i];
      }
    });
    INFO(f.name << ": for example at " << example);
    CHECK(different == 0);
  }
}

TEST_CASE("exponential at the ends of its range", "[math]") {
  const float infinity = std::numeric_limits<float>::infinity();
  const float least = std::numeric_limits<float>::denorm_min();
  const std::pair<float, float> ends[] = {{0.0f, 1.0f},       {-0.0f, 1.0f},     {-infinity, 0.0f},
                                          {-1e30f, 0.0f},     {-104.0f, 0.0f},   {-103.9f, least},
                                          {88.73f, infinity}, {1e30f, infinity}, {infinity, infinity}};
  for (const auto& [x, expected] : ends) {
    INFO(x);
    CHECK(exponential<float>(x) == expected);
  }
  CHECK(exponential<float>(-87.5f) > 0.0f);
  CHECK(exponential<float>(-87.5f) < std::numeric_limits<float>::min());
  CHECK(exponential<float>(88.72f) < infinity);
  CHECK(std::isnan(exponential<float>(std::numeric_limits<float>::quiet_NaN())));
  CHECK(std::isnan(exponential<float>(-std::numeric_limits<float>::quiet_NaN())));
}

TEST_CASE("hyperbolic_tangent is odd to the bit and ends at 1", "[math]") {
  const float infinity = std::numeric_limits<float>::infinity();
  float (*f)(const float&) = hyperbolic_tangent<float>;
  CHECK(f(infinity) == 1.0f);
  CHECK(f(-infinity) == -1.0f);
  CHECK(f(1e4f) == 1.0f);
  CHECK(f(0.0f) == 0.0f);
  CHECK(std::signbit(f(-0.0f)));
  CHECK(std::isnan(f(std::numeric_limits<float>::quiet_NaN())));
  for (float x : {1e-40f, 1e-3f, 0.3f, 0.9999f, 1.0f, 1.5f, 3.9f, 7.0f}) CHECK(f(-x) == -f(x));
}

TEST_CASE("normal_distributions have the limits 0 and 1 and are 1/2 at 0", "[math]") {
  const float infinity = std::numeric_limits<float>::infinity();
  for (float x : {5.5f, 7.0f, 1e4f, 1e30f, infinity}) {
    CHECK(normal_distribution<float>(x) == 1.0f);
    CHECK(normal_distribution<float>(-x) == 0.0f);
  }
  CHECK(normal_distribution<float>(0.0f) == 0.5f);
  CHECK(std::isnan(normal_distribution<float>(std::numeric_limits<float>::quiet_NaN())));
}

TEST_CASE("double and Dual use the standard library's functions", "[math]") {
  // To one ulp: for a constant, the compiler may compute a library function more exactly than the library.
  const auto same = [](double got, double expected) {
    return std::abs(got - expected) <= 2.3e-16 * std::abs(expected);
  };
  const double x = 0.7;
  CHECK(same(exponential<double>(x), std::exp(x)));
  CHECK(same(natural_log<double>(x), std::log(x)));
  CHECK(same(normal_distribution<double>(x), normal_distribution_reference(x)));
  CHECK(same(hyperbolic_tangent<double>(x), std::tanh(x)));
  CHECK(same(square_root<double>(x), std::sqrt(x)));
  const Dual moving(x, 2);
  CHECK(same(exponential<Dual>(moving).derivative, exp(moving).derivative));
  CHECK(same(natural_log<Dual>(moving).derivative, log(moving).derivative));
  CHECK(same(normal_distribution<Dual>(moving).derivative, 2 * std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi)));
  CHECK(same(hyperbolic_tangent<Dual>(moving).derivative, tanh(moving).derivative));
  CHECK(same(square_root<Dual>(moving).derivative, sqrt(moving).derivative));
}

}  // namespace
}  // namespace abh
