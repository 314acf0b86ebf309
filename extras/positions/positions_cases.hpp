#pragma once

#include "cases/case.hpp"
#include "extras/positions/rescale_case.hpp"
#include "extras/positions/rotary_case.hpp"

namespace abh {

// Cases of golden and bench.
struct PositionCases : NoCases {
  template <class Bench>
  static void measure(Bench& bench) {
    const Index B = bench.B(), C = bench.C(), N = bench.N(), K = bench.K();
    const Index count = B * C * 2 * N * K;  // of queries and keys
    bench.layer("rotary", RotaryCase{.B = B, .C = C, .N = 2 * N, .K = K}, count, 3, 3);
    if (K > 1) bench.layer("rescale", RescaleCase{.BC = B * C, .N = 2 * N, .K = K}, count, 6, 7);
  }
};

}  // namespace abh
