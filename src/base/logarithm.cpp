#include "base/logarithm.hpp"

#include <bit>
#include <cstdint>
#include <limits>

namespace abh {

namespace {

// Points c, one near the middle of each sixteenth of the octave, such that 1/c and log c are close to doubles. The
// table and the polynomial are those of S. Nagy, Arm Ltd. (github.com/ARM-software/optimized-routines,
// math/logf_data.c, also in glibc since 2.27). Other constants would be as accurate but give other bits.
struct Point {
  double inverse, log;
};
constexpr Point points[16] = {
    {0x1.661ec79f8f3bep+0, -0x1.57bf7808caadep-2}, {0x1.571ed4aaf883dp+0, -0x1.2bef0a7c06ddbp-2},
    {0x1.49539f0f010bp+0, -0x1.01eae7f513a67p-2},  {0x1.3c995b0b80385p+0, -0x1.b31d8a68224e9p-3},
    {0x1.30d190c8864a5p+0, -0x1.6574f0ac07758p-3}, {0x1.25e227b0b8eap+0, -0x1.1aa2bc79c81p-3},
    {0x1.1bb4a4a1a343fp+0, -0x1.a4e76ce8c0e5ep-4}, {0x1.12358f08ae5bap+0, -0x1.1973c5a611cccp-4},
    {0x1.0953f419900a7p+0, -0x1.252f438e10c1ep-5}, {0x1p+0, 0x0p+0},
    {0x1.e608cfd9a47acp-1, 0x1.aa5aa5df25984p-5},  {0x1.ca4b31f026aap-1, 0x1.c5e53aa362eb4p-4},
    {0x1.b2036576afce6p-1, 0x1.526e57720db08p-3},  {0x1.9c2d163a1aa2dp-1, 0x1.bc2860d22477p-3},
    {0x1.886e6037841edp-1, 0x1.1058bc8a07ee1p-2},  {0x1.767dcf5534862p-1, 0x1.4043057b6ee09p-2}};
constexpr double second = -0x1.ffffef20a4123p-2, third = 0x1.5575b0be00b6ap-2, fourth = -0x1.00ea348b88334p-2;
constexpr double log_2 = 0x1.62e42fefa39efp-1;

constexpr std::uint32_t least = 0x3f330000;  // lower bound of z, 0.699; z is below twice this bound

}  // namespace

float logarithm(float x) noexcept {
  using Limits = std::numeric_limits<float>;
  if (x == 0) return -Limits::infinity();
  if (x < 0) return Limits::quiet_NaN();
  if (!(x <= Limits::max())) return x;  // infinity, NaN
  const bool subnormal = x < Limits::min();
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(subnormal ? x * 0x1p23f : x);
  const std::uint32_t above = bits - least;
  const Point& point = points[above >> 19 & 15];
  const double k = (static_cast<std::int32_t>(above) >> 23) - (subnormal ? 23 : 0);
  const double z = static_cast<double>(std::bit_cast<float>(bits - (above & 0xff800000)));
  const double r = z * point.inverse - 1, r2 = r * r;
  return static_cast<float>((fourth * r2 + (third * r + second)) * r2 + ((point.log + k * log_2) + r));
}

}  // namespace abh
