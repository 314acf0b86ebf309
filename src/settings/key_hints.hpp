#pragma once

#include <string>

namespace abh {

// "; did you mean KEY?" if an unknown metadata key is close to a known key (misspelt, or the name of the flag). Else
// empty.
std::string did_you_mean(const std::string& key);

}  // namespace abh
