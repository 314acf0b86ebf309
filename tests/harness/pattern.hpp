#pragma once

// Regular expressions, compiled once: each use of the standard library's takes the compiler seconds.

#include <string>
#include <vector>

namespace abh {

// The part of a text that a pattern matches, then the match of each group.
using Parts = std::vector<std::string>;

// Where it takes all of the text; else there are no parts.
Parts whole_match(const std::string& text, const std::string& pattern);

// All places where it takes a part of the text, one behind the other.
std::vector<Parts> matches(const std::string& text, const std::string& pattern);

}  // namespace abh
