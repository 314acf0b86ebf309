#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/types.hpp"

namespace abh {

// A character, as it is shown, and how hard it was to predict; no loss for one that nothing predicted.
struct HeatCell {
  std::string shown;  // with the marks that are drawn onto it
  std::optional<double> nats;
  Index columns = 1;                                                      // or 2
  std::vector<std::pair<std::string, std::optional<double>>> marks = {};  // which have no column: code and loss of each
};
using HeatRow = std::vector<HeatCell>;

inline constexpr Index heat_map_columns = 80;
inline constexpr std::size_t largest_heat_map = 4000;  // characters; more make a picture that no browser likes

// Level 0 is under 1 nat, level 1 from 1 to 2 and so on; the last has no end.
inline constexpr int heat_levels = 6;
int heat_level(std::optional<double> nats);
std::string heat_level_name(int level);  // "under 1", "1 to 2", "from 5"

// A text in rows of at most heat_map_columns, the ground of each character the redder the harder it was; pointed at, it
// tells its loss, and that of each of its marks. One self-contained document that follows the reader's light or dark
// preference; the same rows, title and note give the same bytes. Title and note, the line under it, may be any bytes.
std::string heat_map_svg(const std::vector<HeatRow>& rows, std::string_view title, std::string_view note);

}  // namespace abh
