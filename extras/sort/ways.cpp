#include "extras/sort/ways.hpp"

#include <algorithm>
#include <array>

#include "base/text.hpp"
#include "pictures/xml_text.hpp"

namespace abh {

std::string ways_svg(const WaysPicture& picture) {
  constexpr double upper = frame_top + 18, lower = frame_top + 158, height = 182, smallest_named = 8.5;
  const ColourScale scale{.by_roots = true, .largest = 1, .unit = "of a row's weight"};
  const double room = picture_width - 2 * picture_margin;
  const auto x_of = [&](std::size_t i, std::size_t count) {
    return picture_margin + room * (static_cast<double>(i) + 0.5) / static_cast<double>(count);
  };
  // Larger weights are drawn on top.
  std::array<std::string, colour_levels> lines;
  for (std::size_t b = 0; b < picture.below.size(); ++b) {
    for (std::size_t a = 0; a < picture.above.size(); ++a) {
      const int level = scale.level(picture.weight_ba[b * picture.above.size() + a]);
      if (level == 0) continue;
      const std::string from = tenths(x_of(b, picture.below.size())), to = tenths(x_of(a, picture.above.size()));
      lines[static_cast<std::size_t>(level)] += "M" + from + " " + tenths(lower) + "C" + from + " " +
                                                tenths(lower - 60) + " " + to + " " + tenths(upper + 60) + " " + to +
                                                " " + tenths(upper);
    }
  }
  std::string svg = "<g fill=\"none\" stroke-linecap=\"round\">\n";
  for (int level = 1; level < colour_levels; ++level) {
    const std::string& d = lines[static_cast<std::size_t>(level)];
    if (d.empty()) continue;
    svg += "<path class=\"v" + to_text(level) + "\" style=\"stroke:var(--v)\" stroke-width=\"" +
           tenths(0.8 + 0.3 * level) + "\" d=\"" + d + "\"/>\n";
  }
  svg += "</g>\n";
  const auto names = [&](const std::vector<std::string>& row, double y) {
    const double step = room / static_cast<double>(std::max<std::size_t>(1, row.size()));
    for (std::size_t i = 0; i < row.size() && step >= smallest_named; ++i) {
      const auto columns = std::max<Index>(1, static_cast<Index>(step / 8));
      svg += "<text class=\"token\" text-anchor=\"middle\" x=\"" + tenths(x_of(i, row.size())) + "\" y=\"" + tenths(y) +
             "\">" + xml_text(shortened(row[i], columns), 40) + "</text>\n";
    }
  };
  names(picture.above, upper - 5);
  names(picture.below, lower + 15);
  return framed_svg(picture.text, height, scale, svg);
}

}  // namespace abh
