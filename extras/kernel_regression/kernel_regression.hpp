#pragma once

#include "base/types.hpp"

namespace abh {

// Kernel regression: a query is answered with the mean of all values, weighted by how near their keys are. Queries,
// keys and values are single numbers, and the weights those of attention with -1/2 (width (query - key))^2 for its
// score. Nadaraya, "On estimating regression", 1964; Watson, "Smooth regression analysis", 1964. Derivation:
// extras/kernel_regression/README.md.
//
// Sums over s run over the keys that query c sees: all, or with `leave_one_out` all but key c.
//
//   near_c  = the key_s that c sees with the smallest |query_c - key_s|                          (kernel_regression.1)
//   gap_cs  = (near_c - key_s) ((query_c - key_s) + (query_c - near_c))                          (kernel_regression.2)
//   share_c = 1 / (sum_s exp(-1/2 width^2 gap_cs)), 0 where c sees no key                        (kernel_regression.3)
//   out_c   = share_c sum_s exp(-1/2 width^2 gap_cs) value_s                                     (kernel_regression.4)
//
// The gap is (query_c - key_s)^2 - (query_c - near_c)^2, how far the score of s lies below the largest of its row but
// for the factor. It is never negative and 0 for the nearest key, so that the sum is at least 1 whatever the width.
//
// Backward, the weights computed again:
//
//   weight_cs  = share_c exp(-1/2 width^2 gap_cs)                                                (kernel_regression.5)
//   d_score_cs = d_out_c weight_cs (value_s - out_c)                                             (kernel_regression.6)
//   d_query_c  = -width^2 sum_s d_score_cs (near_c - key_s)                                      (kernel_regression.7)
//   d_key_s    = width^2 sum_c d_score_cs (query_c - key_s)                                      (kernel_regression.8)
//   d_value_s  = sum_c weight_cs d_out_c                                                         (kernel_regression.9)
//   d_width   += -width sum_cs d_score_cs gap_cs                                                 (kernel_regression.10)
//
// A query that sees no key has the output 0 and no gradient. NaN in a query, or in a key or value that it sees, is NaN
// in its output.

// Only the square of the width counts: its sign means nothing, and at 0 every weight is the same and d_width is 0. In
// float (width distance)^2 has to stay below 1e38.
template <class T>
struct KernelRegressionInputs {
  const T* query_c;
  const T* key_s;
  const T* value_s;
  const T* width = nullptr;  // one number in the device's memory; null: fixed_width, which nobody learns
  double fixed_width = 1;    // 1: the Gaussian kernel; 0: the mean of all values
  bool leave_one_out = false;
  Index C, S;  // >= 0

  // Whether query c, which is below C, sees key s.
  constexpr bool sees(Index c, Index s) const { return !leave_one_out || c != s; }
};

// Saved for backward: near_c, share_c and out_c, and the inputs. About 30 flops a pair (c, s), half of them those of
// the exponential; reads the keys twice for every query, which stay in a cache. Nothing has C S elements.
template <class T>
struct KernelRegressionForward {
  T* out_c;
  Accum<T>* near_c;
  Accum<T>* share_c;
  KernelRegressionInputs<T> in;
};
template <class Device, class T>
void kernel_regression_forward(Device&, const KernelRegressionForward<T>&);

// For whoever looks: (kernel_regression.5) as an array of (C, S), 0 where c does not see s. In plain/ alone.
template <class Device, class T>
void kernel_regression_weights(Device&, T* weight_cs, const Accum<T>* near_c, const Accum<T>* share_c,
                               const KernelRegressionInputs<T>&);

// About 60 flops a pair: fast devices compute every weight twice, for the sums over keys and for those over queries.
// Scratch: C numbers.
template <class T>
struct KernelRegressionBackward {
  T* d_query_c;  // the three are overwritten
  T* d_key_s;
  T* d_value_s;
  Accum<T>* d_width = nullptr;  // added to; null where in.width is
  const T* d_out_c;
  const T* out_c;
  const Accum<T>* near_c;
  const Accum<T>* share_c;
  KernelRegressionInputs<T> in;
};
template <class Device, class T>
void kernel_regression_backward(Device&, const KernelRegressionBackward<T>&);

}  // namespace abh
