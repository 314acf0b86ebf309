#pragma once

#include <string>
#include <vector>

#include "extras/figures/picture_frame.hpp"

namespace abh {

// Numbers in rows and columns, each a cell whose colour says how large it is.
struct MatrixPicture {
  FrameText text{};
  std::vector<std::string> row_names{}, column_names{};  // as many as there are rows and columns
  std::vector<double> value_rc{};                        // NaN is paper
  ColourScale scale{};                                   // fitted to the numbers where it has no end
};

// As large as fits; names that find no room give way to the numbers of some rows and columns. The same picture gives
// the same bytes.
std::string matrix_svg(const MatrixPicture& picture);

}  // namespace abh
