#pragma once

// The product that gemm.hpp computes, and its definition in three loops.

#include "cpu/lanes.hpp"

namespace abh {
inline namespace ABH_ISA {

template <class T>
struct Gemm {
  T* out_mn;
  const T* a_mk;
  const T* b_kn;
  const T* bias_n = nullptr;
  Index M, N, K;
  Index out_row;
  Index a_row, a_col;  // one of them is 1
  Index b_row, b_col;  // one of them is 1
  T scale = T(1);
  bool accumulate = false;
  T* row_sum_m = nullptr;  // as another column of `out`, with a column of ones in `b`; only where a_row is 1
};

template <class Device, class T>
void reference_gemm(Device& device, const Gemm<T>& g) {
  parallel_rows(device, g.M, 16, [&](Index m) {
    for (Index n = 0; n < g.N; ++n) {
      T sum = T(0);
      for (Index k = 0; k < g.K; ++k) sum += g.a_mk[m * g.a_row + k * g.a_col] * g.b_kn[k * g.b_row + n * g.b_col];
      if (g.bias_n) sum += g.bias_n[n];
      T& out = g.out_mn[m * g.out_row + n];
      out = g.accumulate ? out + g.scale * sum : g.scale * sum;
    }
    if (g.row_sum_m) {
      T sum = T(0);
      for (Index k = 0; k < g.K; ++k) sum += g.a_mk[m * g.a_row + k * g.a_col];
      g.row_sum_m[m] = g.accumulate ? g.row_sum_m[m] + g.scale * sum : g.scale * sum;
    }
  });
}

}  // namespace ABH_ISA
}  // namespace abh
