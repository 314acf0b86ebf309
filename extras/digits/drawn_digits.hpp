#pragma once

#include <cstdint>

#include "extras/digits/picture.hpp"

namespace abh {

// An endless set of digits drawn by the program; example i is the same on every machine. A picture has strokes that are
// stretched, slanted, rotated and perturbed, four scratches and sixteen specks. Only integers are used, so no rounding
// differs. Values are 0 to 16: the number of inked samples of the 4 x 4 samples of a pixel.
inline constexpr Index drawn_side = 16;  // pixels, height and width
inline constexpr Index most_ink = 16;

// Uses words of site `digits` of Philox with key 0 and the example index as step (extras/digits/README.md).
Picture drawn_digit(std::uint32_t example);

}  // namespace abh
