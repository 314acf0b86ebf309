#include "program/run_program.hpp"

#include <fcntl.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>
#include <new>
#include <string>

#include "base/error.hpp"
#include "base/text.hpp"
#include "files/atomic_file.hpp"

namespace abh {

namespace {

// If a standard stream is closed, the next opened file gets its descriptor, and messages would be written to this file.
// A descriptor opened in the wrong direction occupies the number and fails on use.
void guard_standard_streams() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) == -1) static_cast<void>(::open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY));
  }
}

}  // namespace

void flush_standard_output() {
  errno = 0;
  std::cout.flush();
  std::fflush(stdout);
  if (std::cout && !std::ferror(stdout)) return;
  // An earlier write may have failed; its errno is then lost.
  throw Error(std::string("standard output: cannot write: ") + (errno != 0 ? std::strerror(errno) : "write error"));
}

int run_program(const char* name, int argc, char** argv, int (*body)(int, char**)) {
  ignore_file_size_signal();
  std::signal(SIGPIPE, SIG_IGN);
  guard_standard_streams();
  std::string message;
  int status = 1;
  try {
    const int body_status = body(argc, argv);
    const int hung_up = 128 + SIGHUP;  // the terminal is gone, so output is lost
    if (body_status != hung_up) flush_standard_output();
    return body_status;
  } catch (const Error& error) {
    message = error.what();
    status = error.status();
  } catch (const std::bad_alloc&) {
    message = "out of memory";
  } catch (const std::exception& error) {
    message = error.what();
  }
  // Writes output that was printed before the error first; a failure of this write is not reported.
  std::cout.flush();
  std::fflush(stdout);
  std::cerr << name << ": " << one_line(message) << '\n';
  return status;
}

}  // namespace abh
