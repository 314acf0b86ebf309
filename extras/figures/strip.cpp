#include "extras/figures/strip.hpp"

#include <algorithm>
#include <cmath>

#include "base/text.hpp"
#include "pictures/xml_text.hpp"

namespace abh {

std::string strip_svg(const StripPicture& picture) {
  constexpr double column = 8, around = 3, digit = 6, around_value = 6;
  constexpr Index longest_name = 24;
  const double row_height = picture.shows_values ? 38 : 23, right = picture_width - picture_margin;
  std::vector<double> values;
  for (const StripPicture::Cell& cell : picture.cells) values.push_back(cell.value.value_or(0));
  const ColourScale scale = picture.scale.fitted(values);

  std::string svg;
  double x = picture_margin, y = frame_top;
  for (const StripPicture::Cell& cell : picture.cells) {
    const std::string name = shortened(cell.name, longest_name);
    double width = column * static_cast<double>(std::max<Index>(1, columns_of(name))) + around;
    const std::string value = picture.shows_values && cell.value ? short_number(*cell.value) : "";
    if (!value.empty()) width = std::max(width, digit * static_cast<double>(value.size()) + around_value);
    if (x > picture_margin && x + width > right) {
      x = picture_margin;
      y += row_height;
    }
    const int level = scale.level(cell.value.value_or(NAN));
    const std::string middle = " x=\"" + tenths(x + width / 2) + "\" text-anchor=\"middle\" y=\"";
    svg += "<rect class=\"g v" + to_text(level) + "\" x=\"" + tenths(x) + "\" y=\"" + tenths(y) + "\" width=\"" +
           tenths(width) + "\" height=\"21\"/>";
    svg += "<text class=\"token" + std::string(scale.takes_paper_ink(level) ? " over" : "") + "\"" + middle +
           tenths(y + 15) + "\">" + xml_text(name, 60) + "</text>";
    if (!value.empty()) {
      svg += "<text class=\"label\"" + middle + tenths(y + 32) + "\">" + value + "</text>";
    }
    svg += '\n';
    x = cell.ends_line ? right : x + width;
  }
  return framed_svg(picture.text, y + row_height - frame_top, scale, svg);
}

}  // namespace abh
