#pragma once

#include <string>

namespace abh {

// The message of the last exception thrown, in one line.
std::string& thrown_text();

}  // namespace abh
