#pragma once

#include "cases/case.hpp"
#include "extras/leap/leap_gate_case.hpp"
#include "extras/leap/leap_logits_case.hpp"

namespace abh {

// Cases of golden and bench.
struct LeapCases : NoCases {
  template <class Bench>
  static void measure(Bench& bench) {
    const Index B = bench.B(), C = bench.C(), N = bench.N(), D = bench.D();
    bench.layer("leap_logits", LeapLogitsCase{.B = B, .C = C, .N = N, .K = D / N}, B * C * D, 2, 3);
    bench.layer("leap_gate", LeapGateCase{.B = B, .C = C, .N = N, .K = D / N}, B * C * D, 4, 10);
  }
};

}  // namespace abh
