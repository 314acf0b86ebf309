#pragma once

#include <map>
#include <string>
#include <vector>

#include "docs/kernels/levels.hpp"

namespace abh::kernels {

// The sizes of an operation that its traces have, and odd ones for tests. Level: some need multiples.
std::vector<int> shown_sizes(const std::string& operation);
std::vector<std::vector<int>> odd_sizes(const Level& level);

// Arrays of an operation at these sizes, filled with numbers of few digits.
Case case_of(const std::string& operation, const std::vector<int>& sizes, bool narrow);

// The results of the case by the plain loops (plain/), in double.
std::map<std::string, std::vector<double>> expected(const std::string& operation, const Case& given);

}  // namespace abh::kernels
