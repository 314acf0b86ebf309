#pragma once

#include <string>
#include <vector>

#include "extras/figures/picture_frame.hpp"

namespace abh {

// A matrix of numbers as coloured cells.
struct MatrixPicture {
  FrameText text{};
  std::vector<std::string> row_names{}, column_names{};  // one per row or column
  std::vector<double> value_rc{};                        // NaN: background
  ColourScale scale{};                                   // fitted to the numbers if its end is not set
};

// The matrix is as large as possible; if names do not fit, some rows and columns get numbers instead. Equal pictures
// give equal bytes.
std::string matrix_svg(const MatrixPicture& picture);

}  // namespace abh
