#pragma once

#include <string>
#include <vector>

#include "extras/figures/picture_frame.hpp"

namespace abh {

// Two rows of tokens with lines between them: the line from a lower to an upper token is thicker for a larger weight.
struct WaysPicture {
  FrameText text{};
  std::vector<std::string> above{}, below{};
  std::vector<double> weight_ba{};  // 0 to 1, one row per lower token
};

// Equal pictures give equal bytes.
std::string ways_svg(const WaysPicture& picture);

}  // namespace abh
