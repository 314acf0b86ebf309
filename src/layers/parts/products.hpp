#pragma once

// Matrix products that compute linear maps and other layers on the CPU and the GPU.

#include "layers/linear.hpp"

namespace abh {

// Matrix product: out_mn = scale (a_mk b_kn + bias_n), or the same added to out_mn. `a` has the elements
// a_mk[m * a_row + k * a_col], so a transposed matrix has exchanged strides.
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
  // GPU: array with the layout of `out` that replaces out_mn as the summand, and its factor.
  const Out* added_mn = nullptr;
  Accum<T> added_scale = Accum<T>(1);
  bool upper = false;        // CPU: elements with n < m are not used
  Out* row_sum_m = nullptr;  // CPU: row sums of `a`, computed with a column of ones in `b`; only if a_row is 1
  Index batches = 1;         // GPU: batch i has the arrays out_mn + i out_batch, a_mk + i a_batch, b_kn + i b_batch
  Index out_batch = 0, a_batch = 0, b_batch = 0;
};

template <class T>
Gemm<T> output_product(const LinearForward<T>& a) {
  return {.out_mn = a.out_bco,
          .a_mk = a.in_bci,
          .b_kn = a.weight_oi,
          .bias_n = a.bias_o,
          .M = a.shape.BC,
          .N = a.shape.O,
          .K = a.shape.I,
          .out_row = stride_or(a.shape.out_stride, a.shape.O),
          .a_row = stride_or(a.shape.in_stride, a.shape.I),
          .a_col = 1,
          .b_row = 1,
          .b_col = a.shape.I,
          .scale = Accum<T>(a.scale),
          .upper = a.shape.upper};
}

template <class T>
Gemm<T> input_gradient_product(const LinearBackwardInput<T>& a) {
  return {.out_mn = a.d_in_bci,
          .a_mk = a.d_out_bco,
          .b_kn = a.weight_oi,
          .M = a.shape.BC,
          .N = a.shape.I,
          .K = a.shape.O,
          .out_row = stride_or(a.shape.in_stride, a.shape.I),
          .a_row = stride_or(a.shape.out_stride, a.shape.O),
          .a_col = 1,
          .b_row = a.shape.I,
          .b_col = 1,
          .scale = Accum<T>(a.scale),
          .accumulate = a.accumulate,
          .upper = a.shape.upper};
}

template <class T>
Gemm<T, Accum<T>> weight_gradient_product(const LinearBackwardWeight<T>& a) {
  return {.out_mn = a.d_weight_oi,
          .a_mk = a.d_out_bco,
          .b_kn = a.in_bci,
          .M = a.shape.O,
          .N = a.shape.I,
          .K = a.shape.BC,
          .out_row = a.shape.I,
          .a_row = 1,
          .a_col = stride_or(a.shape.out_stride, a.shape.O),
          .b_row = stride_or(a.shape.in_stride, a.shape.I),
          .b_col = 1,
          .scale = Accum<T>(a.scale),
          .accumulate = true,
          .upper = a.shape.upper};
}

// Channels per group from which the causal convolution is a matrix product.
inline constexpr Index causal_conv_gemm_width = 8;

}  // namespace abh
