#include "program/terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>

namespace abh {

void print(std::string_view text) { std::cout << text; }

std::optional<std::size_t> terminal_columns() {
  winsize window{};
  if (::isatty(STDOUT_FILENO) != 1 || ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) != 0 || window.ws_col == 0) {
    return std::nullopt;
  }
  return window.ws_col;
}

bool on_terminal() {
  const char* terminal = std::getenv("TERM");
  return ::isatty(STDOUT_FILENO) == 1 && terminal && *terminal != '\0' && std::string_view(terminal) != "dumb";
}

bool colour_wanted() {
  const char* no_color = std::getenv("NO_COLOR");
  return !no_color || *no_color == '\0';
}

}  // namespace abh
