#pragma once

#include <optional>
#include <string>
#include <vector>

#include "extras/figures/picture_frame.hpp"

namespace abh {

// A row of tokens in reading order; the background of a token shows its value.
struct StripPicture {
  struct Cell {
    std::string name;
    std::optional<double> value;  // none: background
    bool ends_line = false;
  };
  FrameText text{};
  std::vector<Cell> cells{};
  ColourScale scale{};        // fitted to the numbers if its end is not set
  bool shows_values = false;  // true: numbers below the names
};

// Equal pictures give equal bytes.
std::string strip_svg(const StripPicture& picture);

}  // namespace abh
