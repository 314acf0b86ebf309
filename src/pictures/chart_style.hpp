#pragma once

#include <string>
#include <string_view>

namespace abh {

// The style of a chart: ink on paper for light, the reverse for dark. `light` and `dark` are what it has of its own
// beside text, paper, grid and axes, a rule a line; the axes in dark are among them.
std::string chart_style(std::string_view light, std::string_view dark);

}  // namespace abh
