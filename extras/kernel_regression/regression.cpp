#include "extras/kernel_regression/regression.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string_view>

#include "base/text.hpp"
#include "base/types.hpp"
#include "pictures/chart_style.hpp"
#include "pictures/xml_text.hpp"

namespace abh {
namespace {

// Curves differ in dashes as well as in hue.
constexpr std::string_view light_rules = R"(.point{fill:#9aa4af}
.curve0,.curve1,.curve2,.curve3{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
.curve0{stroke:#1f2328;stroke-dasharray:1 4}
.curve1{stroke:#8250df;stroke-dasharray:10 5}
.curve2{stroke:#2f7fd6;stroke-dasharray:5 4}
.curve3{stroke:#c2410c}
.weights{fill:#c2410c}
.frame{fill:none;stroke:#9aa4af;stroke-width:1}
)";
constexpr std::string_view dark_rules = R"(.axis,.frame{stroke:#57616c}
.point{fill:#7d8793}
.curve0{stroke:#eef2f6}
.curve1{stroke:#b083f0}
.curve2{stroke:#6cb0f5}
.curve3{stroke:#ffa05c}
.weights{fill:#ffa05c}
)";

constexpr int shades = 10;  // levels of a weight, besides 0

}  // namespace

std::string regression_svg(const RegressionPicture& picture) {
  constexpr double left = 48, right = 440, top = 84, bottom = 400;
  double low = 0, high = 1;
  const auto include = [&](const std::vector<double>& values) {
    for (double y : values) {
      low = std::min(low, y);
      high = std::max(high, y);
    }
  };
  include(picture.point_y);
  for (const RegressionPicture::Curve& curve : picture.curves) include(curve.y);
  low = std::floor(low);
  high = std::ceil(high);
  double x_end = 1;
  for (const std::vector<double>* xs : {&picture.point_x, &picture.at}) {
    for (double x : *xs) x_end = std::max(x_end, std::ceil(x));
  }
  const auto x_of = [&](double x) { return left + (right - left) * x / x_end; };
  const auto y_of = [&](double y) { return bottom - (bottom - top) * (y - low) / (high - low); };
  const auto px = [](double v) { return fixed_text(v, 1); };

  const std::string name = xml_text(picture.title, 76);
  std::string svg =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 720 452\" width=\"720\" height=\"452\" role=\"img\" "
      "aria-labelledby=\"regression-title regression-desc\">\n";
  svg += "<title id=\"regression-title\">" + name + "</title>\n";
  svg += "<desc id=\"regression-desc\">" + to_text(picture.point_x.size()) + " points with noise, and curves:";
  for (std::size_t i = 0; i < picture.curves.size(); ++i) {
    svg += (i ? ", " : " ") + xml_text(picture.curves[i].name, 40);
  }
  svg += ".";
  if (!picture.matrices.empty()) {
    svg +=
        " Beside them squares of weights, stronger where a point counts more; rows are places of a curve, columns the "
        "points, both from the smallest x to the largest:";
    for (std::size_t i = 0; i < picture.matrices.size(); ++i) {
      const std::vector<double>& weights = picture.matrices[i].weight_cs;
      const double most = weights.empty() ? 0 : *std::max_element(weights.begin(), weights.end());
      svg += (i ? ", " : " ") + xml_text(picture.matrices[i].name, 40) + " with a largest weight of " +
             fixed_text(most, 3);
    }
    svg += ".";
  }
  svg += "</desc>\n";
  svg += chart_style(light_rules, dark_rules);
  svg += "<rect class=\"paper\" width=\"720\" height=\"452\" rx=\"8\"/>\n";
  svg += "<text class=\"title\" x=\"24\" y=\"32\">" + name + "</text>\n";

  const auto line = [&](const std::string& style, double x1, double y1, double x2, double y2) {
    svg += "<line class=\"" + style + "\" x1=\"" + px(x1) + "\" y1=\"" + px(y1) + "\" x2=\"" + px(x2) + "\" y2=\"" +
           px(y2) + "\"/>\n";
  };
  const auto text = [&](double x, double y, const char* attributes, const std::string& content) {
    svg += "<text x=\"" + px(x) + "\" y=\"" + px(y) + "\" " + attributes + ">" + content + "</text>\n";
  };

  for (std::size_t i = 0; i < picture.curves.size(); ++i) {
    const double x = 24 + 104 * static_cast<double>(i);
    line("curve" + to_text(i), x, 56, x + 24, 56);
    text(x + 30, 60, "class=\"name\"", xml_text(picture.curves[i].name, 11));
  }
  for (double y = low; y <= high; ++y) {
    line(y == low ? "axis" : "grid", left, y_of(y), right, y_of(y));
    text(left - 8, y_of(y) + 4, "text-anchor=\"end\"", fixed_text(y, 0));
  }
  for (double x = 0; x <= x_end; ++x) {
    if (x > 0) line("grid", x_of(x), top, x_of(x), bottom);
    text(x_of(x), bottom + 19, "text-anchor=\"middle\"", fixed_text(x, 0));
  }
  for (std::size_t i = 0; i < picture.point_x.size(); ++i) {
    svg += "<circle class=\"point\" cx=\"" + px(x_of(picture.point_x[i])) + "\" cy=\"" + px(y_of(picture.point_y[i])) +
           "\" r=\"3\"/>\n";
  }
  for (std::size_t i = 0; i < picture.curves.size(); ++i) {
    svg += "<polyline class=\"curve" + to_text(i) + "\" points=\"";
    for (std::size_t c = 0; c < picture.at.size(); ++c) {
      svg += px(x_of(picture.at[c])) + ',' + px(y_of(picture.curves[i].y[c])) + ' ';
    }
    svg += "\"/>\n";
  }

  constexpr double side = 150, matrix_left = 514;
  const std::size_t rows = picture.at.size(), columns = picture.point_x.size();
  for (std::size_t i = 0; i < picture.matrices.size(); ++i) {
    const double matrix_top = 76 + 182 * static_cast<double>(i);
    text(matrix_left, matrix_top - 7, "class=\"name\"", "weights, " + xml_text(picture.matrices[i].name, 20));
    svg += "<g class=\"weights\">\n";
    const std::vector<double>& weight_cs = picture.matrices[i].weight_cs;
    const double most = weight_cs.empty() ? 0 : *std::max_element(weight_cs.begin(), weight_cs.end());
    const auto shade = [&](std::size_t c, std::size_t s) {
      return most > 0 ? static_cast<int>(std::lround(shades * weight_cs[c * columns + s] / most)) : 0;
    };
    const double width = side / static_cast<double>(columns), height = side / static_cast<double>(rows);
    for (std::size_t c = 0; c < rows; ++c) {
      for (std::size_t s = 0, end; s < columns; s = end) {
        for (end = s + 1; end < columns && shade(c, end) == shade(c, s);) ++end;
        if (shade(c, s) == 0) continue;
        svg += "<rect x=\"" + px(matrix_left + width * static_cast<double>(s)) + "\" y=\"" +
               px(matrix_top + height * static_cast<double>(c)) + "\" width=\"" +
               px(width * static_cast<double>(end - s)) + "\" height=\"" + px(height) + "\" fill-opacity=\"" +
               fixed_text(static_cast<double>(shade(c, s)) / shades, 1) + "\"/>\n";
      }
    }
    svg += "</g>\n<rect class=\"frame\" x=\"" + px(matrix_left) + "\" y=\"" + px(matrix_top) + "\" width=\"" +
           px(side) + "\" height=\"" + px(side) + "\"/>\n";
  }
  if (!picture.matrices.empty()) {
    text(matrix_left, bottom + 27, "class=\"name\"", "down: x asked; across: points");
  }
  return svg + "</svg>\n";
}

}  // namespace abh
