#pragma once

#include <iostream>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "pictures/heat_map.hpp"

namespace abh {

// The substitute of a character that is not shown as it is: a picture of a control character, or a stand-in.
std::string stand_in(std::string_view character, char32_t code);

// Prints a text and how hard each character was, row by row as it comes: with colours, the harder the redder; without,
// a second line under each with the whole nats of each character, under its first column. What has no column has no
// digit: marks are drawn onto the character before them, the rest (directions, joiners, selectors) is left out, as what
// comes of it differs from terminal to terminal.
class ByCharacter {
 public:
  explicit ByCharacter(bool colour, std::ostream& out = std::cout);

  // The next character, or a byte of what is not UTF-8. A row ends with a line break, or before what does not fit.
  void add(std::string_view character, std::optional<double> nats);
  // Prints what is left of the last row.
  void finish();

  // The first largest_heat_map characters that have a column, for a picture.
  const std::vector<HeatRow>& rows() const { return rows_; }

 private:
  void print_row() const;

  bool colour_;
  std::ostream& out_;
  HeatRow row_;        // the one at work
  Index columns_ = 0;  // of it
  std::vector<HeatRow> rows_;
  std::size_t kept_ = 0;  // characters in rows_
};

}  // namespace abh
