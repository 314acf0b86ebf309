#pragma once

#include <iostream>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "pictures/heat_map.hpp"

namespace abh {

// Replacement of a character that cannot be displayed: symbol of a control character, or a replacement character.
std::string stand_in(std::string_view character, char32_t code);

// Prints a text with the loss of each character, row by row. With colours, a higher loss is redder. Without colours, a
// second line below each row has the loss in whole nats, below the first column of each character. Combining marks have
// no digit. Other characters without a column (directions, joiners, selectors) are omitted, because terminals display
// them differently.
class ByCharacter {
 public:
  explicit ByCharacter(bool colour, std::ostream& out = std::cout);

  // Adds the next character, or a byte that is not UTF-8. A row ends at a line break, or before a character that
  // exceeds it.
  void add(std::string_view character, std::optional<double> nats);
  // Prints the rest of the last row.
  void finish();

  // The first largest_heat_map characters that have a column, for a picture.
  const std::vector<HeatRow>& rows() const { return rows_; }

 private:
  void print_row() const;

  bool colour_;
  std::ostream& out_;
  HeatRow row_;        // current row
  Index columns_ = 0;  // of the current row
  std::vector<HeatRow> rows_;
  std::size_t kept_ = 0;  // characters in rows_
};

}  // namespace abh
