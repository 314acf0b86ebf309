#pragma once

#include <string>

namespace abh {

// "; did you mean KEY?", where a key of metadata is no model's but nearly one: misspelt, or the name of its flag. Else
// empty.
std::string did_you_mean(const std::string& key);

}  // namespace abh
