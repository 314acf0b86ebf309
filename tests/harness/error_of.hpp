#pragma once

#include <string>

#include "base/error.hpp"
#include "catch.hpp"

namespace abh {

// The message of the Error that `call` throws, which must be one line for status 1; "no error" if it throws none.
template <class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    const std::string message = error.what();
    CHECK(error.status() == 1);
    CHECK(message.find('\n') == std::string::npos);
    return message;
  }
  return "no error";
}

}  // namespace abh
