#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "base/types.hpp"
#include "blocks/layout.hpp"
#include "settings/config.hpp"

namespace abh {

// Position encodings without learned weights, computed in double and rounded once. In float, the sine of position times
// frequency has an error of 2e-3 at position 65,536.

// Angle of pair i of a row of `width` channels at position c, in radians: c 10000^(-2 i / width).
inline double position_angle(Index c, Index i, Index width) {
  return static_cast<double>(c) * std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(width));
}

// Sinusoidal position c, channel d of D: sine and cosine of each pair alternate; an odd D ends with a sine (Vaswani et
// al., "Attention is all you need", 2017, 3.5).
inline double sinusoid(Index c, Index d, Index D) {
  const double angle = position_angle(c, d / 2, D);
  return d % 2 == 0 ? std::sin(angle) : std::cos(angle);
}

// Factor of rotary positions (extras/positions/rotary.hpp) for channel k of a head of K channels at position c: cosine
// of the angle for the first channel of a pair, sine for the second.
inline double rotary_turn(Index c, Index k, Index K) {
  const double angle = position_angle(c, k / 2, K);
  return k % 2 == 0 ? std::cos(angle) : std::sin(angle);
}

// ALiBi slope of head n of N: the decrease of a score per position between query and key, or of a logit per later
// position, 2^(-8 (n + 1) / N) (Press, Smith, Lewis, "Train short, test long", 2022, 3).
inline double alibi_slope(Index n, Index N) {
  return std::exp2(-8.0 * static_cast<double>(n + 1) / static_cast<double>(N));
}

// ALiBi slopes as in the program of its authors and in BLOOM. If N is not a power of two: the slopes for P heads, with
// P the largest power of two below N, then the slopes of heads 0, 2, 4, ... for 2 P heads.
inline double interleaved_alibi_slope(Index n, Index N) {
  const Index P = static_cast<Index>(std::bit_floor(static_cast<std::uint64_t>(N)));
  return n < P ? alibi_slope(n, P) : alibi_slope(2 * (n - P), 2 * P);
}

// Slope function that the network uses.
inline auto alibi_rule(const ModelConfig& config) {
  return config.interleaves_slopes() ? interleaved_alibi_slope : alibi_slope;
}

// Slopes of all heads, in device memory; null if the network has none.
template <class T>
const Accum<T>* alibi_slopes(Layout<T>& layout, const ModelConfig& config) {
  if (!config.has_alibi()) return nullptr;
  const Index N = config.heads;
  return layout.template constant<Accum<T>>("slope_n", N,
                                            [N, slope = alibi_rule(config)](Index n) { return slope(n, N); });
}

}  // namespace abh
