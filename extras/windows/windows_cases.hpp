#pragma once

#include <algorithm>

#include "cases/case.hpp"
#include "cases/pooling.hpp"

namespace abh {

// Cases of golden and bench.
struct WindowCases : NoCases {
  template <class Bench>
  static void measure(Bench& bench) {
    const Index B = bench.B(), C = bench.C(), N = bench.N(), D = bench.D();
    bench.layer("pooling_sliding_window", PoolingCase{.shape = {B, C, N, D / N, std::min<Index>(16, C)}}, B * C * D, 9,
                14);
  }
};

}  // namespace abh
