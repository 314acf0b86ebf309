#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/types.hpp"

namespace abh {

// Displayed character with its loss; no loss if it was not predicted.
struct HeatCell {
  std::string shown;  // including combining marks
  std::optional<double> nats;
  Index columns = 1;                                                      // or 2
  std::vector<std::pair<std::string, std::optional<double>>> marks = {};  // combining marks: code and loss
};
using HeatRow = std::vector<HeatCell>;

inline constexpr Index heat_map_columns = 80;
inline constexpr std::size_t largest_heat_map = 4000;  // characters; browsers display larger pictures slowly

// Level 0: below 1 nat; level 1: from 1 to 2 nats; ...; the last level has no upper limit.
inline constexpr int heat_levels = 6;
int heat_level(std::optional<double> nats);
std::string heat_level_name(int level);  // "under 1", "1 to 2", "from 5"

// SVG of a text in rows of at most heat_map_columns. The background of a character is redder for a higher loss; its
// tooltip contains the loss of the character and its marks. Self-contained, for light and dark mode. The bytes depend
// only on rows, title and note. Title and note (the line below the title) may be any bytes.
std::string heat_map_svg(const std::vector<HeatRow>& rows, std::string_view title, std::string_view note);

}  // namespace abh
