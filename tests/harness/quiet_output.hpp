#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

namespace abh {

// Standard output goes nowhere while it lives.
class QuietOutput {
 public:
  QuietOutput() : output_(::dup(STDOUT_FILENO)) {
    std::fflush(stdout);
    const int nowhere = ::open("/dev/null", O_WRONLY);
    ::dup2(nowhere, STDOUT_FILENO);
    ::close(nowhere);
  }
  ~QuietOutput() {
    std::fflush(stdout);
    ::dup2(output_, STDOUT_FILENO);
    ::close(output_);
  }

 private:
  int output_;
};

}  // namespace abh
