#pragma once

#include <string>
#include <string_view>

namespace abh {

// Style of a chart: dark on white, and light on dark for dark mode. `light` and `dark`: additional CSS rules of the
// chart, one per line; `dark` must contain the rule of the axes.
std::string chart_style(std::string_view light, std::string_view dark);

}  // namespace abh
