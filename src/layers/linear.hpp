#pragma once

#include "base/types.hpp"

namespace abh {

// A linear map of every row. Derivation: docs/layers/linear.md.
//
//   out_bco = scale (sum_i in_bci weight_oi {+ bias_o | given})                    (linear.1)
//
// Backward:
//
//   d_in_bci = scale sum_o d_out_bco weight_oi {+ d_in_bci | accumulate}           (linear.2)
//   d_weight_oi += scale sum_bc d_out_bco in_bci                                   (linear.3)
//   d_bias_o += scale sum_bc d_out_bco                                             (linear.4)
//
// Rows may be slices of wider ones: a stride is the distance, in elements, between the starts of two consecutive rows,
// 0 for rows that touch. weight_oi is (O, I), rows touching, as PyTorch stores it. Weights that stand one after the
// other in memory (query, key, value) are one weight with a larger O. BC >= 0, I >= 1, O >= 1. No output overlaps an
// input. Each of the three products takes 2 BC I O flops and moves at least (BC I + BC O + I O) elements; backward
// needs the input and the weight, nothing else is saved.
template <class T>
struct LinearForward {
  T* out_bco;  // overwritten
  const T* in_bci;
  const T* weight_oi;
  const T* bias_o = nullptr;
  Index BC, I, O;
  Index in_stride = 0, out_stride = 0;
  double scale = 1;
};

template <class Device, class T>
void linear_forward(Device&, const LinearForward<T>&);

template <class T>
struct LinearBackwardInput {
  T* d_in_bci;  // overwritten, or added to where `accumulate` is set
  const T* d_out_bco;
  const T* weight_oi;
  Index BC, I, O;
  Index in_stride = 0, out_stride = 0;  // of d_in_bci, of d_out_bco
  double scale = 1;
  bool accumulate = false;
};

template <class Device, class T>
void linear_backward_input(Device&, const LinearBackwardInput<T>&);

template <class T>
struct LinearBackwardWeight {
  Accum<T>* d_weight_oi;         // added to
  Accum<T>* d_bias_o = nullptr;  // added to, where given
  const T* d_out_bco;
  const T* in_bci;
  Index BC, I, O;
  Index in_stride = 0, out_stride = 0;
  double scale = 1;
};

template <class Device, class T>
void linear_backward_weight(Device&, const LinearBackwardWeight<T>&);

// The products behind these functions, and others, as the matrix product of a device takes them: out_mn = scale (a_mk
// b_kn + bias_n), or the same added to out_mn. Element (m, k) of `a` stands at a_mk[m * a_row + k * a_col], so that a
// transposed matrix is one with its strides exchanged.
template <class T, class Out = T>
struct Gemm {
  Out* out_mn;
  const T* a_mk;
  const T* b_kn;
  const T* bias_n = nullptr;
  Index M, N, K;
  Index out_row;
  Index a_row, a_col;  // one of them is 1
  Index b_row, b_col;  // one of them is 1
  Accum<T> scale = Accum<T>(1);
  bool accumulate = false;
  Out* row_sum_m = nullptr;  // CPU: as another column of `out`, with a column of ones in `b`; only where a_row is 1
  Index batches = 1;         // GPU: batch i works on out_mn + i out_batch, a_mk + i a_batch, b_kn + i b_batch
  Index out_batch = 0, a_batch = 0, b_batch = 0;
};

template <class T>
Gemm<T> output_product(const LinearForward<T>& a) {
  return {.out_mn = a.out_bco,
          .a_mk = a.in_bci,
          .b_kn = a.weight_oi,
          .bias_n = a.bias_o,
          .M = a.BC,
          .N = a.O,
          .K = a.I,
          .out_row = stride_or(a.out_stride, a.O),
          .a_row = stride_or(a.in_stride, a.I),
          .a_col = 1,
          .b_row = 1,
          .b_col = a.I,
          .scale = Accum<T>(a.scale)};
}

template <class T>
Gemm<T> input_gradient_product(const LinearBackwardInput<T>& a) {
  return {.out_mn = a.d_in_bci,
          .a_mk = a.d_out_bco,
          .b_kn = a.weight_oi,
          .M = a.BC,
          .N = a.I,
          .K = a.O,
          .out_row = stride_or(a.in_stride, a.I),
          .a_row = stride_or(a.out_stride, a.O),
          .a_col = 1,
          .b_row = a.I,
          .b_col = 1,
          .scale = Accum<T>(a.scale),
          .accumulate = a.accumulate};
}

template <class T>
Gemm<T, Accum<T>> weight_gradient_product(const LinearBackwardWeight<T>& a) {
  return {.out_mn = a.d_weight_oi,
          .a_mk = a.d_out_bco,
          .b_kn = a.in_bci,
          .M = a.O,
          .N = a.I,
          .K = a.BC,
          .out_row = a.I,
          .a_row = 1,
          .a_col = stride_or(a.out_stride, a.O),
          .b_row = stride_or(a.in_stride, a.I),
          .b_col = 1,
          .scale = Accum<T>(a.scale),
          .accumulate = true};
}

}  // namespace abh
