#pragma once

#include <string>
#include <string_view>

#include "base/types.hpp"
#include "extras/figures/colour_scale.hpp"

namespace abh {

// Common frame of all figures of networks (matrix, strip, ways, patches): readable at the width of a telephone, light
// and dark, with a title, a text alternative and a scale.

inline constexpr double picture_width = 358, picture_margin = 14;

struct FrameText {
  std::string title, note{};  // note: line below the title
  std::string description{};  // text alternative
};

// One self-contained document. `body` begins at frame_top and is `height` high; the scale is below it.
inline constexpr double frame_top = 60;
std::string framed_svg(const FrameText& text, double height, const ColourScale& scale, std::string_view body);

// A coordinate with one decimal.
std::string tenths(double value);
// Width of a name in columns of a terminal, and about its width in a figure.
Index columns_of(std::string_view name);
// The name cut to this many columns, with an ellipsis if shortened.
std::string shortened(std::string_view name, Index columns);

}  // namespace abh
