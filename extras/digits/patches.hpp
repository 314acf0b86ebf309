#pragma once

#include <string>
#include <vector>

#include "extras/figures/picture_frame.hpp"

namespace abh {

// A small grey picture in patches, each on a ground that says how much it has of something; ink lies on top.
struct PatchesPicture {
  FrameText text{};
  Index height = 0, width = 0;   // of the picture, pixels
  Index patch = 0;               // of a patch
  std::vector<double> ink_yx{};  // 0 to 1
  std::vector<double> value_p{};
  std::string unit{};
};

// The same picture gives the same bytes.
std::string patches_svg(const PatchesPicture& picture);

}  // namespace abh
