#pragma once

#include "cases/case.hpp"
#include "extras/bahdanau/bahdanau_attention_case.hpp"

namespace abh {

// Cases of golden and bench.
struct BahdanauCases : NoCases {
  template <class Bench>
  static void measure(Bench& bench) {
    const Index B = bench.B(), C = bench.C(), N = bench.N(), K = bench.K();
    bench.layer("bahdanau_attention", BahdanauAttentionCase{{.B = B, .C = C, .N = N, .K = K}},
                B * N * K * C * (C + 1) / 2, 7, 20);
  }
};

}  // namespace abh
