#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace abh {

// To standard output.
void print(std::string_view text);

// Width of the terminal on standard output; none if it is no terminal.
std::optional<std::size_t> terminal_columns();

// True if standard output is a terminal that can rewrite a line (TERM is set and not "dumb").
bool on_terminal();

// True if colours are allowed on a terminal: NO_COLOR is not set.
bool colour_wanted();

}  // namespace abh
