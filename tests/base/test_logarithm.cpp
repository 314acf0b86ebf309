#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/logarithm.hpp"
#include "cpu/math.hpp"
#include "tests/harness/catch.hpp"

namespace abh {
namespace {

// Counts the floats with bit patterns first, first + step, ... below end for which logarithm() differs from the
// library.
[[maybe_unused]] std::uint64_t others(std::uint64_t first, std::uint64_t end, std::uint64_t step) {
  std::uint64_t count = 0;
  for (std::uint64_t bits = first; bits < end; bits += step) {
    const float x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    const float ours = logarithm(x), theirs = std::log(x);
    count += std::bit_cast<std::uint32_t>(ours) != std::bit_cast<std::uint32_t>(theirs);
  }
  return count;
}

constexpr std::uint64_t infinity_bits = 0x7f800000;

}  // namespace

#if defined(__GLIBC__)
TEST_CASE("a logarithm has the bits of glibc's for sampled floats", "[logarithm]") {
  CHECK(others(0, infinity_bits + 1, 1009) == 0);
  CHECK(others(0, 1 << 16, 1) == 0);                                      // the smallest subnormal numbers
  CHECK(others((1 << 23) - 4096, (1 << 23) + 4096, 1) == 0);              // the smallest normal numbers
  CHECK(others(0x3f800000 - (1 << 16), 0x3f800000 + (1 << 16), 1) == 0);  // around 1
  CHECK(others(infinity_bits - 4096, infinity_bits + 1, 1) == 0);
  for (std::uint64_t octave = 0; octave < 255; ++octave) {  // the borders of the table
    for (std::uint64_t part = 0; part < 16; ++part) {
      const std::uint64_t border = octave << 23 | part << 19;
      CHECK(others(border > 64 ? border - 64 : 0, border + 64, 1) == 0);
    }
  }
}

TEST_CASE("a logarithm has the bits of glibc's for every positive float", "[logarithm][slow][check_all]") {
  CHECK(others(0, infinity_bits + 1, 1) == 0);
}
#endif

TEST_CASE("a logarithm of zero, negative numbers, infinity and NaN", "[logarithm]") {
  using Limits = std::numeric_limits<float>;
  CHECK(logarithm(0.0f) == -Limits::infinity());
  CHECK(logarithm(-0.0f) == -Limits::infinity());
  CHECK(logarithm(Limits::infinity()) == Limits::infinity());
  CHECK(logarithm(1.0f) == 0.0f);
  for (const float x : {-1.0f, -Limits::denorm_min(), -Limits::infinity(), Limits::quiet_NaN()}) {
    CHECK(std::isnan(logarithm(x)));
  }
}

TEST_CASE("log_one_plus is within its stated error", "[logarithm]") {
  double worst = 0;
  for (std::uint64_t bits = 0; bits < infinity_bits; bits += 1009) {
    const float x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    const double expected = std::log1p(static_cast<double>(x));
    const float rounded = static_cast<float>(expected);
    const double last_place = static_cast<double>(std::nextafter(rounded, HUGE_VALF)) - static_cast<double>(rounded);
    const double error = std::abs(static_cast<double>(log_one_plus(x)) - expected) / last_place;
    if (!(error <= worst)) worst = error;
  }
  CHECK_FALSE(!(worst <= 2.8));
  CHECK(log_one_plus(HUGE_VALF) == HUGE_VALF);
  CHECK(std::isnan(log_one_plus(std::numeric_limits<float>::quiet_NaN())));
}

}  // namespace abh
