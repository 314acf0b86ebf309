#pragma once

#include "base/types.hpp"

namespace abh {

// Kernel regression: the output of a query is the weighted mean of all values, with larger weights for nearer keys.
// Queries, keys and values are single numbers. The weights are those of attention with score -1/2 (width (query -
// key))^2. Nadaraya, "On estimating regression", 1964; Watson, "Smooth regression analysis", 1964. Derivation:
// extras/kernel_regression/README.md.
// extras/kernel_regression/README.md.
//
// Sums over s run over the keys of query c: all, or with `leave_one_out` all except key c.
//
//   near_c  = the key_s that c sees with the smallest |query_c - key_s|                          (kernel_regression.1)
//   gap_cs  = (near_c - key_s) ((query_c - key_s) + (query_c - near_c))                          (kernel_regression.2)
//   share_c = 1 / (sum_s exp(-1/2 width^2 gap_cs)), 0 where c sees no key                        (kernel_regression.3)
//   out_c   = share_c sum_s exp(-1/2 width^2 gap_cs) value_s                                     (kernel_regression.4)
//
// The gap is (query_c - key_s)^2 - (query_c - near_c)^2: proportional to the largest score of the row minus the score
// of s. It is at least 0, and 0 for the nearest key. The sum is therefore at least 1 for any width.
//
// Backward pass, with recomputed weights:
//
//   weight_cs  = share_c exp(-1/2 width^2 gap_cs)                                                (kernel_regression.5)
//   d_score_cs = d_out_c weight_cs (value_s - out_c)                                             (kernel_regression.6)
//   d_query_c  = -width^2 sum_s d_score_cs (near_c - key_s)                                      (kernel_regression.7)
//   d_key_s    = width^2 sum_c d_score_cs (query_c - key_s)                                      (kernel_regression.8)
//   d_value_s  = sum_c weight_cs d_out_c                                                         (kernel_regression.9)
//   d_width   += -width sum_cs d_score_cs gap_cs                                                 (kernel_regression.10)
//
// A query without keys has output 0 and no gradient. A NaN in a query, or in one of its keys or values, makes its
// output NaN.

// Only the square of the width is used, so its sign has no effect. At width 0 all weights are equal and d_width is 0.
// In float, (width distance)^2 must be below 1e38.
template <class T>
struct KernelRegressionInputs {
  const T* query_c;
  const T* key_s;
  const T* value_s;
  const T* width = nullptr;  // one number in device memory; null: fixed_width, not learned
  double fixed_width = 1;    // 1: the Gaussian kernel; 0: the mean of all values
  bool leave_one_out = false;
  Index C, S;  // >= 0

  // True if key s is used for query c < C.
  constexpr bool sees(Index c, Index s) const { return !leave_one_out || c != s; }
};

// Saved for backward: near_c, share_c, out_c and the inputs. About 30 flops per pair (c, s), half of them for the
// exponential. Reads the keys twice per query, from cache. No array has C S elements.
template <class T>
struct KernelRegressionForward {
  T* out_c;
  Accum<T>* near_c;
  Accum<T>* share_c;
  KernelRegressionInputs<T> in;
};
template <class Device, class T>
void kernel_regression_forward(Device&, const KernelRegressionForward<T>&);

// For inspection: (kernel_regression.5) as an array (C, S), 0 for keys that are not used. Only in plain/.
template <class Device, class T>
void kernel_regression_weights(Device&, T* weight_cs, const Accum<T>* near_c, const Accum<T>* share_c,
                               const KernelRegressionInputs<T>&);

// About 60 flops per pair: fast devices compute every weight twice, for sums over keys and for sums over queries.
// Scratch: C numbers.
template <class T>
struct KernelRegressionBackward {
  T* d_query_c;  // these three are overwritten
  T* d_key_s;
  T* d_value_s;
  Accum<T>* d_width = nullptr;  // accumulated; null if in.width is null
  const T* d_out_c;
  const T* out_c;
  const Accum<T>* near_c;
  const Accum<T>* share_c;
  KernelRegressionInputs<T> in;
};
template <class Device, class T>
void kernel_regression_backward(Device&, const KernelRegressionBackward<T>&);

}  // namespace abh
