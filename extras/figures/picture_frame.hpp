#pragma once

#include <string>
#include <string_view>

#include "base/types.hpp"
#include "extras/figures/colour_scale.hpp"

namespace abh {

// The common frame of the pictures of a network (matrix, strip, ways, patches): as wide as a telephone, so that their
// text can be read there, light and dark, with a title, a text alternative and a scale.

inline constexpr double picture_width = 358, picture_margin = 14;

struct FrameText {
  std::string title, note{};  // the line under it
  std::string description{};  // for whoever does not see the picture
};

// One self-contained document. `body` begins at frame_top and is `height` high; below it stands the scale.
inline constexpr double frame_top = 60;
std::string framed_svg(const FrameText& text, double height, const ColourScale& scale, std::string_view body);

// A coordinate, to a tenth.
std::string tenths(double value);
// How many columns a name has on a terminal, and about in a picture.
Index columns_of(std::string_view name);
// At most so many of its columns, with an ellipsis for what is left out.
std::string shortened(std::string_view name, Index columns);

}  // namespace abh
