#pragma once

// Regular expressions, compiled once: each use of the standard library's takes the compiler seconds.

#include <string>
#include <vector>

namespace abh {

// The part of a text that a pattern matches, then the match of each group.
using Parts = std::vector<std::string>;

// Parts of a pattern that matches the whole text; empty without a match.
Parts whole_match(const std::string& text, const std::string& pattern);

// All matches of a pattern in a text, in order.
std::vector<Parts> matches(const std::string& text, const std::string& pattern);

}  // namespace abh
