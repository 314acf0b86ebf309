#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace abh {

// To standard output.
void print(std::string_view text);

// How wide the terminal is that standard output is; none where it is none.
std::optional<std::size_t> terminal_columns();

// Whether standard output is a terminal that can rewrite a line (TERM set and not "dumb").
bool on_terminal();

// Whether colours are wanted on a terminal: not if NO_COLOR is set to anything.
bool colour_wanted();

}  // namespace abh
