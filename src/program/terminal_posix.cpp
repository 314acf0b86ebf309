// Terminal functions for POSIX systems; src/device/windows has the functions for Windows.

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

#include "program/terminal.hpp"

namespace abh {

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

}  // namespace abh
