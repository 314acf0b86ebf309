#include "extras/figures/matrix.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/text.hpp"
#include "pictures/xml_text.hpp"

namespace abh {

namespace {

constexpr Index longest_name = 10;  // columns
constexpr double name_column = 6.2, smallest_named = 8.5, largest_cell = 26, flattest_row = 14;

double width_of(const std::vector<std::string>& names) {
  Index columns = 1;
  for (const std::string& name : names) columns = std::max(columns, std::min(longest_name, columns_of(name)));
  return static_cast<double>(columns) * name_column;
}

// Adjacent cells of one level in a row form one line; a level is one path, with relative coordinates to save bytes.
std::string cells(const MatrixPicture& picture, const ColourScale& scale) {
  struct Path {
    std::string d;
    Index row = 0, column = 0;  // current point
  };
  std::array<Path, colour_levels> paths;
  const auto columns = static_cast<Index>(picture.column_names.size());
  const auto rows = static_cast<Index>(picture.row_names.size());
  const int paper = scale.level(NAN);
  for (Index row = 0; row < rows; ++row) {
    const auto level_at = [&](Index column) {
      return scale.level(picture.value_rc[static_cast<std::size_t>(row * columns + column)]);
    };
    for (Index column = 0, end; column < columns; column = end) {
      const int level = level_at(column);
      for (end = column + 1; end < columns && level_at(end) == level;) ++end;
      if (level == paper) continue;
      Path& path = paths[static_cast<std::size_t>(level)];
      const Index right = column - path.column, down = row - path.row;
      path.d += "m" + to_text(right) + (down < 0 ? "" : " ") + to_text(down) + "h" + to_text(end - column);
      path.row = row;
      path.column = end;
    }
  }
  std::string svg;
  for (std::size_t level = 0; level < paths.size(); ++level) {
    if (!paths[level].d.empty()) svg += "<path class=\"v" + to_text(level) + "\" d=\"" + paths[level].d + "\"/>\n";
  }
  return svg;
}

// Interval between numbers for cells of this size, so that they do not overlap.
Index tick_of(double cell) {
  Index tick = 1;
  while (static_cast<double>(tick) * cell < 26) tick *= 2;
  return tick;
}

}  // namespace

std::string matrix_svg(const MatrixPicture& picture) {
  const auto rows = static_cast<Index>(picture.row_names.size());
  const auto columns = static_cast<Index>(picture.column_names.size());
  const double left = picture_margin + std::max(width_of(picture.row_names), 3 * name_column) + 4;
  const double room = picture_width - left - picture_margin;
  double wide = std::min(largest_cell, room / static_cast<double>(std::max<Index>(1, columns)));
  if (wide >= 4) wide = std::floor(wide);
  const double high = rows * 3 <= columns ? std::max(wide, flattest_row) : wide;
  const bool names_columns = wide >= smallest_named, upright = width_of(picture.column_names) < 2 * name_column;
  const double head = !names_columns || upright ? 14 : width_of(picture.column_names) + 6;
  const ColourScale scale = picture.scale.fitted(picture.value_rc);
  const double top = frame_top + head, tall = high * static_cast<double>(rows);

  std::string svg;
  const auto label = [&](double x, double y, const std::string& more, const std::string& name) {
    svg += "<text class=\"label\" x=\"" + tenths(x) + "\" y=\"" + tenths(y) + "\"" + more + ">" +
           xml_text(shortened(name, longest_name), 40) + "</text>\n";
  };
  const Index row_tick = high >= smallest_named ? 1 : tick_of(high), column_tick = names_columns ? 1 : tick_of(wide);
  for (Index row = 0; row < rows; row += row_tick) {
    label(left - 4, top + (static_cast<double>(row) + 0.5) * high + 3.5, " text-anchor=\"end\"",
          row_tick == 1 ? picture.row_names[static_cast<std::size_t>(row)] : to_text(row));
  }
  for (Index column = 0; column < columns; column += column_tick) {
    const double x = left + (static_cast<double>(column) + 0.5) * wide;
    const std::string turned = " transform=\"rotate(-90 " + tenths(x + 3.5) + " " + tenths(top - 4) + ")\"";
    if (!names_columns) {
      label(x, top - 4, " text-anchor=\"middle\"", to_text(column));
    } else {
      label(upright ? x : x + 3.5, top - 4, upright ? " text-anchor=\"middle\"" : turned,
            picture.column_names[static_cast<std::size_t>(column)]);
    }
  }
  svg += "<g class=\"cells\" transform=\"translate(" + tenths(left) + " " + tenths(top + high / 2) + ") scale(" +
         to_text(static_cast<float>(wide)) + " " + to_text(static_cast<float>(high)) + ")\">\n" +
         cells(picture, scale) + "</g>\n";
  svg += "<rect class=\"edge\" x=\"" + tenths(left) + "\" y=\"" + tenths(top) + "\" width=\"" +
         tenths(wide * static_cast<double>(columns)) + "\" height=\"" + tenths(tall) + "\"/>\n";
  return framed_svg(picture.text, head + tall, scale, svg);
}

}  // namespace abh
