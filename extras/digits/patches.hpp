#pragma once

#include <string>
#include <vector>

#include "extras/figures/picture_frame.hpp"

namespace abh {

// A small grey picture cut into patches. The background of a patch shows its value; ink is drawn on top.
struct PatchesPicture {
  FrameText text{};
  Index height = 0, width = 0;   // pixels of the picture
  Index patch = 0;               // pixels of a patch
  std::vector<double> ink_yx{};  // 0 to 1
  std::vector<double> value_p{};
  std::string unit{};
};

// Equal pictures give equal bytes.
std::string patches_svg(const PatchesPicture& picture);

}  // namespace abh
