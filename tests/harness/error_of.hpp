#pragma once

#include <string>

#include "base/error.hpp"
#include "catch.hpp"

namespace abh {

// Message of the Error that `call` throws; it must be one line with status 1. "no error" if `call` does not throw.
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
