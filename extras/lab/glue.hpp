#pragma once

#include <string>

namespace abh {

// What was thrown last, in one line.
std::string& thrown_text();

}  // namespace abh
