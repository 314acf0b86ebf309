#include "program/terminal.hpp"

#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace abh {

bool on_terminal() {
  const char* terminal = std::getenv("TERM");
  return ::isatty(STDOUT_FILENO) == 1 && terminal && *terminal != '\0' && std::string_view(terminal) != "dumb";
}

bool colour_wanted() {
  const char* no_color = std::getenv("NO_COLOR");
  return !no_color || *no_color == '\0';
}

}  // namespace abh
