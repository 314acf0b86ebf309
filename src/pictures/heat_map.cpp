#include "pictures/heat_map.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "pictures/xml_text.hpp"

namespace abh {

namespace {

// Dark text on light backgrounds, and the reverse in dark mode. Backgrounds differ in brightness and hue.
constexpr std::string_view svg_style = R"(<style>
text{font-family:system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif;font-size:12px;fill:#59636e}
.paper,.heat0{fill:#ffffff}
.title{font-size:15px;font-weight:600;fill:#1f2328}
.row text{font-family:ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:13px;fill:#1f2328;text-anchor:middle;pointer-events:none}
.heat1{fill:#fff3c4}
.heat2{fill:#fde08a}
.heat3{fill:#fbbf5b}
.heat4{fill:#f79a4b}
.heat5{fill:#ef6f45}
@media (prefers-color-scheme:dark){
text{fill:#9aa4af}
.paper,.heat0{fill:#0f141a}
.title,.row text{fill:#eef2f6}
.heat1{fill:#3a3418}
.heat2{fill:#5a4312}
.heat3{fill:#7a4a12}
.heat4{fill:#9a4416}
.heat5{fill:#b83a1c}
}
</style>
)";

constexpr Index margin = 24, top = 96, column_width = 9, row_height = 20;

}  // namespace

int heat_level(std::optional<double> nats) {
  return nats ? static_cast<int>(std::clamp(*nats, 0.0, heat_levels - 1.0)) : 0;
}

std::string heat_level_name(int level) {
  if (level == 0) return "under 1";
  return level == heat_levels - 1 ? "from " + to_text(level) : to_text(level) + " to " + to_text(level + 1);
}

std::string heat_map_svg(const std::vector<HeatRow>& rows, std::string_view title, std::string_view note) {
  const Index width = 2 * margin + heat_map_columns * column_width;
  const Index height = top + static_cast<Index>(rows.size()) * row_height + margin;
  const std::string size = to_text(width), tall = to_text(height);
  std::string svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + size + " " + tall + "\" width=\"" +
                    size + "\" height=\"" + tall + "\" role=\"img\" aria-labelledby=\"heat-title heat-desc\">\n";
  const auto place = [](Index x, Index y) { return " x=\"" + to_text(x) + "\" y=\"" + to_text(y) + "\""; };
  const auto ground = [&](int level, Index x, Index y, Index columns) {
    return "<rect class=\"heat" + to_text(level) + "\"" + place(x, y) + " width=\"" + to_text(columns * column_width) +
           "\" height=\"" + to_text(row_height) + "\"";
  };
  const auto loss_of = [](std::optional<double> nats) {
    return nats ? fixed_text(*nats, 2) + " nats" : std::string("not predicted");
  };
  const std::string name = xml_text(title, 76);
  svg += "<title id=\"heat-title\">" + name + "</title>\n";
  svg += "<desc id=\"heat-desc\">A text; the ground of each character is the redder the more nats it cost.</desc>\n";
  svg += svg_style;
  svg += "<rect class=\"paper\" width=\"" + size + "\" height=\"" + tall + "\" rx=\"8\"/>\n";
  svg += "<text class=\"title\"" + place(margin, 32) + ">" + name + "</text>\n";
  svg += "<text" + place(margin, 54) + ">" + xml_text(note, 120) + "</text>\n";

  Index x = margin;
  svg += "<text" + place(x, 78) + ">nats:</text>\n";
  x += 40;
  for (int level = 0; level < heat_levels; ++level, x += 80) {
    svg += ground(level, x, 64, 1) + "/>\n<text" + place(x + column_width + 5, 78) + ">" + heat_level_name(level) +
           "</text>\n";
  }

  Index y = top;
  for (const HeatRow& row : rows) {
    svg += "<g class=\"row\">\n";
    x = margin;
    for (const HeatCell& cell : row) {
      const std::string shown = xml_text(cell.shown, 1 + cell.marks.size());
      std::string losses = loss_of(cell.nats);
      for (const auto& [code, nats] : cell.marks) losses += ", " + code + " " + loss_of(nats);
      svg += ground(heat_level(cell.nats), x, y, cell.columns) + "><title>" + shown + " " + losses + "</title></rect>";
      const Index middle = x + cell.columns * column_width / 2;
      if (cell.shown != " ") svg += "<text" + place(middle, y + 15) + ">" + shown + "</text>";
      svg += '\n';
      x += cell.columns * column_width;
    }
    svg += "</g>\n";
    y += row_height;
  }
  return svg + "</svg>\n";
}

}  // namespace abh
