#pragma once

#include <string>
#include <vector>

namespace abh {

// Points, curves through them, and how much each point counts for each place of a curve.
struct RegressionPicture {
  std::string title;  // any bytes
  std::vector<double> point_x, point_y;
  std::vector<double> at;  // rising: where curves are known
  struct Curve {
    std::string name;
    std::vector<double> y;
  };
  std::vector<Curve> curves;  // the first is the truth; four at most
  struct Matrix {
    std::string name;
    std::vector<double> weight_cs;  // a row for each place in `at`, a column for each point; none negative
  };
  std::vector<Matrix> matrices;  // two at most
};

// One self-contained document of 720 x 452 that follows the reader's light or dark preference; the same picture gives
// the same bytes.
std::string regression_svg(const RegressionPicture& picture);

}  // namespace abh
