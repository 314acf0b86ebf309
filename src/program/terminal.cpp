#include "program/terminal.hpp"

#include <cstdlib>
#include <iostream>

namespace abh {

void print(std::string_view text) { std::cout << text; }

bool colour_wanted() {
  const char* no_color = std::getenv("NO_COLOR");
  return !no_color || *no_color == '\0';
}

}  // namespace abh
