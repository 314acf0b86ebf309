#include "base/random.hpp"

#include <cmath>
#include <numbers>

namespace abh {

double normal_number(std::uint64_t seed, std::uint64_t index, std::uint32_t step, std::uint32_t site) {
  const double radius_uniform = uniform_of(philox_word(seed, 2 * index, step, site));
  const double angle_uniform = uniform_of(philox_word(seed, 2 * index + 1, step, site));
  return std::sqrt(-2 * std::log(radius_uniform)) * std::cos(2 * std::numbers::pi * angle_uniform);
}

}  // namespace abh
