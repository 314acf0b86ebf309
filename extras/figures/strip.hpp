#pragma once

#include <optional>
#include <string>
#include <vector>

#include "extras/figures/picture_frame.hpp"

namespace abh {

// Tokens one after the other, as a text is read, each on a ground that says how much it has of something.
struct StripPicture {
  struct Cell {
    std::string name;
    std::optional<double> value;  // none: paper
    bool ends_line = false;
  };
  FrameText text{};
  std::vector<Cell> cells{};
  ColourScale scale{};        // fitted to the numbers where it has no end
  bool shows_values = false;  // as numbers under the names
};

// The same picture gives the same bytes.
std::string strip_svg(const StripPicture& picture);

}  // namespace abh
