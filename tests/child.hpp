#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "catch.hpp"

namespace abh {

// Does `body` in a process of its own and gives its exit status, 0 unless the body ends it with another; -1 if it did
// not end by itself.
template <class Body>
int status_of_child(const Body& body) {
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

}  // namespace abh
