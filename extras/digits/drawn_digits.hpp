#pragma once

#include <cstdint>

#include "extras/digits/picture.hpp"

namespace abh {

// Digits that the program draws, without end: example number i is the same for everybody. Each is made of strokes that
// are stretched, slanted, turned and shaken, of four scratches and of sixteen specks; in whole numbers alone, so that
// no machine rounds otherwise. Values are 0 to 16: how many of the 4 x 4 samples of a pixel are ink.
inline constexpr Index drawn_side = 16;  // pixels, both ways
inline constexpr Index most_ink = 16;

// Words of site `digits` of Philox with key 0 and the example as step (extras/digits/README.md).
Picture drawn_digit(std::uint32_t example);

}  // namespace abh
