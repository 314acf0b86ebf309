#pragma once

#include <stdexcept>
#include <string>

namespace abh {

// An error, thrown as one line without the program's name; main prints `program: message` and returns the
// status. Status 1: found in a file, in the environment or during the run.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, int status = 1) : std::runtime_error(message), status_(status) {}
  int status() const { return status_; }

 private:
  int status_;
};

// Status 2: can be decided from the command line alone.
class UsageError : public Error {
 public:
  explicit UsageError(const std::string& message) : Error(message, 2) {}
};

}  // namespace abh
