#pragma once

#include <string>
#include <vector>

#include "extras/figures/picture_frame.hpp"

namespace abh {

// Two rows of tokens, and between them lines: from each below to those above that it looks at, the thicker the more.
struct WaysPicture {
  FrameText text{};
  std::vector<std::string> above{}, below{};
  std::vector<double> weight_ba{};  // 0 to 1, a row for each token below
};

// The same picture gives the same bytes.
std::string ways_svg(const WaysPicture& picture);

}  // namespace abh
