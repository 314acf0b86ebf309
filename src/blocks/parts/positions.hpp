#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "base/types.hpp"
#include "blocks/layout.hpp"
#include "settings/config.hpp"

namespace abh {

// The parts of position encodings that are not learned. They are computed in double and rounded once. In float, the
// sine of the product of position and frequency is off by 2e-3 at position 65,536.

// The angle of pair i of a row of `width` channels at position c, in radians: c 10000^(-2 i / width).
inline double position_angle(Index c, Index i, Index width) {
  return static_cast<double>(c) * std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(width));
}

// Row c of sinusoidal positions, channel d of D: sine and cosine of each pair in turn, an odd D ends with a sine
// (Vaswani et al., "Attention is all you need", 2017, 3.5).
inline double sinusoid(Index c, Index d, Index D) {
  const double angle = position_angle(c, d / 2, D);
  return d % 2 == 0 ? std::sin(angle) : std::cos(angle);
}

// The factor that turns channel k of a head of K at position c (extras/positions/rotary.hpp): the cosine of its pair's
// angle for the first of the pair, the sine for the second.
inline double rotary_turn(Index c, Index k, Index K) {
  const double angle = position_angle(c, k / 2, K);
  return k % 2 == 0 ? std::cos(angle) : std::sin(angle);
}

// The amount that ALiBi takes from the score of head n of N for every position between query and key, or from a logit
// for every position since: 2^(-8 (n + 1) / N) (Press, Smith, Lewis, "Train short, test long", 2022, 3).
inline double alibi_slope(Index n, Index N) {
  return std::exp2(-8.0 * static_cast<double>(n + 1) / static_cast<double>(N));
}

// The same as its authors' program and BLOOM have it: where N is no power of two, the slopes of the largest below it,
// P, and then those of heads 0, 2, 4, ... of 2 P, which lie between.
inline double interleaved_alibi_slope(Index n, Index N) {
  const Index P = static_cast<Index>(std::bit_floor(static_cast<std::uint64_t>(N)));
  return n < P ? alibi_slope(n, P) : alibi_slope(2 * (n - P), 2 * P);
}

// The one of the two that a network has.
inline auto alibi_rule(const ModelConfig& config) {
  return config.interleaves_slopes() ? interleaved_alibi_slope : alibi_slope;
}

// The slopes of all heads, in device memory; null where the network has none.
template <class T>
const Accum<T>* alibi_slopes(Layout<T>& layout, const ModelConfig& config) {
  if (!config.has_alibi()) return nullptr;
  const Index N = config.heads;
  return layout.template constant<Accum<T>>("slope_n", N,
                                            [N, slope = alibi_rule(config)](Index n) { return slope(n, N); });
}

}  // namespace abh
