#pragma once

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

#include "catch.hpp"

namespace abh {

// Runs `body` in its own process and returns its exit status, 0 unless the body exits with another; -1 if it did not
// exit by itself.
template <class Body>
int subprocess_status(const Body& body) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::signal(SIGSEGV, SIG_DFL);
    std::signal(SIGBUS, SIG_DFL);
    body();
    ::_exit(0);  // no destructor of the test runs
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Output of `body` on a terminal without colours, in its own process. `body` returns the exit status, 0.
template <class Body>
std::string shown_on_terminal(const Body& body) {
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  REQUIRE((terminal >= 0 && ::grantpt(terminal) == 0 && ::unlockpt(terminal) == 0));
  const int output = ::open(::ptsname(terminal), O_RDWR | O_NOCTTY | O_CLOEXEC);
  std::fflush(stdout);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::dup2(output, STDOUT_FILENO);
    ::setenv("TERM", "xterm", 1);
    ::setenv("NO_COLOR", "1", 1);
    const int status = body();
    std::fflush(stdout);
    std::cout.flush();
    ::_exit(status);
  }
  ::close(output);
  std::string shown;
  int status = 0;
  char buffer[4096];
  // Reading fails once the child is gone and all of its output has been read.
  for (ssize_t count; (count = ::read(terminal, buffer, sizeof buffer)) > 0;)
    shown.append(buffer, static_cast<std::size_t>(count));
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  ::close(terminal);
  return shown;
}

}  // namespace abh
