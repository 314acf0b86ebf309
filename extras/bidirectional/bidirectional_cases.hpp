#pragma once

#include "cases/case.hpp"
#include "cases/pooling.hpp"

namespace abh {

// Cases of golden and bench.
struct BidirectionalCases : NoCases {
  template <class Bench>
  static void measure(Bench& bench) {
    const Index B = bench.B(), C = bench.C(), N = bench.N(), D = bench.D();
    bench.layer("pooling_bidirectional", PoolingCase{.shape = {B, C, N, D / N, 0, false}}, B * C * D, 2, 5);
  }
};

}  // namespace abh
