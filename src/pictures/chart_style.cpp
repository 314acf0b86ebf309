#include "pictures/chart_style.hpp"

namespace abh {

std::string chart_style(std::string_view light, std::string_view dark) {
  std::string style = R"(<style>
text{font-family:system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif;font-size:12px;fill:#59636e}
.paper{fill:#ffffff}
.title{font-size:15px;font-weight:600;fill:#1f2328}
.name{fill:#1f2328}
.grid{stroke:#e4e8ec;stroke-width:1}
.axis{stroke:#9aa4af;stroke-width:1}
)";
  style += light;
  style += R"(@media (prefers-color-scheme:dark){
text{fill:#9aa4af}
.paper{fill:#0f141a}
.title,.name{fill:#eef2f6}
.grid{stroke:#232a32}
)";
  style += dark;
  return style + "}\n</style>\n";
}

}  // namespace abh
