#pragma once

#include <stdexcept>
#include <string>

namespace abh {

// Error with a one-line message, without the name of the program; main prints `program: message` and returns the
// status. Status 1: an error in a file, in the environment or during the run.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, int status = 1) : std::runtime_error(message), status_(status) {}
  int status() const { return status_; }

 private:
  int status_;
};

// Status 2: an error of the command line.
class UsageError : public Error {
 public:
  explicit UsageError(const std::string& message) : Error(message, 2) {}
};

}  // namespace abh
