// Replaces src/device/pages.cpp and src/program/terminal_posix.cpp, and implements the rest of posix.hpp.

#include <windows.h>

#include "device/pages.hpp"
#include "program/terminal.hpp"

namespace {

// Files and output have the same line ends as on other systems.
[[maybe_unused]] const bool binary = [] {
  _set_fmode(_O_BINARY);
  for (const int stream : {0, 1, 2}) _setmode(stream, _O_BINARY);
  return true;
}();

void (*on_hangup)(int) = SIG_DFL;

// Windows calls this function in a separate thread and ends the program when it returns, or after some seconds. It does
// not return, so the main thread can end first.
BOOL WINAPI hang_up(DWORD event) {
  if (event == CTRL_C_EVENT || event == CTRL_BREAK_EVENT) return FALSE;
  on_hangup(SIGHUP);
  Sleep(INFINITE);
  return TRUE;
}

}  // namespace

int sigaction(int number, const struct sigaction* action, struct sigaction* before) {
  auto handler = on_hangup;
  if (number != SIGHUP) {
    handler = std::signal(number, action ? action->sa_handler : SIG_DFL);
    if (handler == SIG_ERR) return -1;
    if (!action) std::signal(number, handler);
  } else if (action) {
    on_hangup = action->sa_handler;
    SetConsoleCtrlHandler(hang_up, on_hangup != SIG_DFL);
  }
  if (before) before->sa_handler = handler;
  return 0;
}

long sysconf(int name) {
  constexpr DWORDLONG page = 4096;
  MEMORYSTATUSEX status{};
  status.dwLength = sizeof(status);
  if (name == _SC_PAGESIZE) return page;
  return GlobalMemoryStatusEx(&status) ? static_cast<long>(status.ullAvailPhys / page) : -1;
}

namespace abh {

void wish_for_huge_pages(void*, std::size_t) {}
std::size_t peak_memory() { return 0; }
void reset_peak_memory() {}
long page_faults() { return 0; }

std::optional<std::size_t> terminal_columns() {
  CONSOLE_SCREEN_BUFFER_INFO window{};
  if (!GetConsoleScreenBufferInfo(GetStdHandle(STD_OUTPUT_HANDLE), &window)) return std::nullopt;
  return static_cast<std::size_t>(window.srWindow.Right - window.srWindow.Left + 1);
}

bool on_terminal() {
  const HANDLE output = GetStdHandle(STD_OUTPUT_HANDLE);
  DWORD mode = 0;
  return GetConsoleMode(output, &mode) && SetConsoleMode(output, mode | ENABLE_VIRTUAL_TERMINAL_PROCESSING);
}

}  // namespace abh
