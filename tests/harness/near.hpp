#pragma once

#include <cmath>
#include <cstddef>

#include "catch.hpp"

namespace abh {

// Largest distance between corresponding numbers of two ranges; NaN if any number is NaN.
template <class A, class B>
double distance(const A& a, const B& b) {
  REQUIRE(a.size() == b.size());
  double furthest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double here = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    furthest = here <= furthest ? furthest : here;
  }
  return furthest;
}

}  // namespace abh
