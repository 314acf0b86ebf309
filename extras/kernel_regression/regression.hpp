#pragma once

#include <string>
#include <vector>

namespace abh {

// Points, fitted curves, and the weight of each point at each place of a curve.
struct RegressionPicture {
  std::string title;  // any bytes
  std::vector<double> point_x, point_y;
  std::vector<double> at;  // increasing: the places of the curves
  struct Curve {
    std::string name;
    std::vector<double> y;
  };
  std::vector<Curve> curves;  // the first is the true function; at most four
  struct Matrix {
    std::string name;
    std::vector<double> weight_cs;  // one row per place in `at`, one column per point; not negative
  };
  std::vector<Matrix> matrices;  // at most two
};

// One self-contained SVG of 720 x 452 with light and dark colours. Equal pictures give equal bytes.
std::string regression_svg(const RegressionPicture& picture);

}  // namespace abh
