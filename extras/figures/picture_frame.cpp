#include "extras/figures/picture_frame.hpp"

#include <cmath>

#include "base/text.hpp"
#include "base/unicode.hpp"
#include "base/utf8.hpp"
#include "pictures/chart_style.hpp"
#include "pictures/xml_text.hpp"

namespace abh {

namespace {

constexpr std::string_view rules = R"(.g{fill:var(--v)}
.cells path{stroke:var(--v)}
.cells{fill:none;stroke-width:1;shape-rendering:crispEdges}
.edge{fill:none;stroke:#9aa4af}
.label{font-size:10px}
.token{font-family:ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:13px;fill:#1f2328}
.over{fill:#ffffff}
.ink{fill:#1f2328;stroke:#ffffff}
)";
constexpr std::string_view dark_rules = R"(.edge{stroke:#57616c}
.token{fill:#eef2f6}
.over{fill:#0f141a}
.ink{fill:#eef2f6;stroke:#0f141a}
)";

// Legend: one swatch per level between the ends; a square-root scale also shows its middle value.
std::string legend(double y, const ColourScale& scale) {
  constexpr double swatch = 8;
  const std::string low = short_number(scale.value(0));
  const double first = picture_margin + 7 * static_cast<double>(low.size()) + 5;
  const auto text = [&](double x, double below, const char* more, const std::string& content) {
    return "<text x=\"" + tenths(x) + "\" y=\"" + tenths(y + below) + "\"" + more + ">" + content + "</text>\n";
  };
  std::string svg = text(picture_margin, 9, "", low);
  for (int level = 0; level < colour_levels; ++level) {
    svg += "<rect class=\"g v" + to_text(level) + "\" x=\"" + tenths(first + swatch * level) + "\" y=\"" + tenths(y) +
           "\" width=\"8\" height=\"10\"/>";
  }
  const double width = swatch * colour_levels;
  svg += "\n<rect class=\"edge\" x=\"" + tenths(first) + "\" y=\"" + tenths(y) + "\" width=\"" + tenths(width) +
         "\" height=\"10\"/>\n";
  if (scale.by_roots) {
    svg +=
        text(first + width / 2, 21, " class=\"label\" text-anchor=\"middle\"", short_number(scale.value(middle_level)));
  }
  return svg + text(first + width + 5, 9, "", short_number(scale.largest) + " " + xml_text(scale.unit, 28));
}

}  // namespace

std::string framed_svg(const FrameText& text, double height, const ColourScale& scale, std::string_view body) {
  const std::string width = tenths(picture_width), tall = tenths(frame_top + height + (scale.by_roots ? 46 : 38));
  std::string svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + width + " " + tall + "\" width=\"" +
                    width + "\" height=\"" + tall + "\" role=\"img\" aria-labelledby=\"title desc\">\n";
  const std::string x = tenths(picture_margin);
  svg += "<title id=\"title\">" + xml_text(text.title, 200) + "</title>\n<desc id=\"desc\">" +
         xml_text(text.description, 1000) + "</desc>\n";
  svg += chart_style(std::string(rules) + colour_rules(scale.colours, false),
                     std::string(dark_rules) + colour_rules(scale.colours, true));
  svg += "<rect class=\"paper\" width=\"" + width + "\" height=\"" + tall + "\" rx=\"8\"/>\n";
  svg += "<text class=\"title\" x=\"" + x + "\" y=\"25\">" + xml_text(text.title, 48) + "</text>\n";
  svg += "<text x=\"" + x + "\" y=\"43\">" + xml_text(text.note, 60) + "</text>\n";
  svg += body;
  svg += legend(frame_top + height + 14, scale);
  return svg + "</svg>\n";
}

std::string tenths(double value) {
  std::string text = fixed_text(value, 1);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text == "-0" ? "0" : text;
}

Index columns_of(std::string_view name) {
  Index columns = 0;
  for (std::size_t position = 0; position < name.size();) {
    const char32_t code = next_code_point(name, position);
    if (code == invalid_code_point) ++position;
    const CharacterKind kind = code == invalid_code_point ? CharacterKind::hidden : character_kind(code);
    columns += kind == CharacterKind::wide ? 2 : kind == CharacterKind::mark || kind == CharacterKind::format ? 0 : 1;
  }
  return columns;
}

std::string shortened(std::string_view name, Index columns) {
  if (columns_of(name) <= columns) return std::string(name);
  std::size_t end = 0;
  for (std::size_t position = 0; position < name.size(); end = position) {
    if (next_code_point(name, position) == invalid_code_point) ++position;
    if (columns_of(name.substr(0, position)) > columns - 1) break;
  }
  return std::string(name.substr(0, end)) + "\u2026";
}

}  // namespace abh
