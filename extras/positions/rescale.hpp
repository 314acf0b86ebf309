#pragma once

#include "base/types.hpp"

namespace abh {

// Normalises each head of a row to mean 0 and standard deviation 1, without weights. The dot product of two such heads
// of K channels is at most K - 1. Queries and keys are rescaled to bound the logits. Derivation:
// extras/positions/rescale.md.
//
//   mean_bcn      = 1/K sum_k in_bcnk                                                     (rescale.1)
//   deviation_bcn = (1/(K - 1) sum_k (in_bcnk - mean_bcn)^2)^(1/2)                        (rescale.2)
//   out_bcnk      = (in_bcnk - mean_bcn) / (deviation_bcn + epsilon)                      (rescale.3)
//
// Backward pass, with the mean of d_out over a head, mean_d_out_bcn = 1/K sum_k d_out_bcnk:
//
//   along_bcn = 1/((K - 1) deviation_bcn) sum_k d_out_bcnk out_bcnk, 0 where the deviation is 0   (rescale.4)
//   d_in_bcnk = (d_out_bcnk - mean_d_out_bcn) / (deviation_bcn + epsilon) - along_bcn out_bcnk    (rescale.5)
inline constexpr double rescale_epsilon = 1e-5;

// Rows of N heads of K channels. A stride is the distance between two consecutive rows (0: N K), so rows may be slices
// of wider rows. out_bch may be in_bch, with the same stride. deviation_bcn, (BC, N), and out are saved for backward.
// BC >= 0, N >= 1, K >= 2: a single channel has no deviation. About 6 flops per element; reads and writes each row
// once.
template <class T>
struct RescaleForward {
  T* out_bch;
  Accum<T>* deviation_bcn;
  const T* in_bch;
  Index out_stride = 0, in_stride = 0;
  Index BC, N, K;
};
template <class Device, class T>
void rescale_forward(Device&, const RescaleForward<T>&);

// d_in_bch, overwritten, may be d_out_bch itself, with the same stride. About 7 flops per element.
template <class T>
struct RescaleBackward {
  T* d_in_bch;
  const T* d_out_bch;
  const T* out_bch;
  Index d_in_stride = 0, d_out_stride = 0, out_stride = 0;
  const Accum<T>* deviation_bcn;
  Index BC, N, K;
};
template <class Device, class T>
void rescale_backward(Device&, const RescaleBackward<T>&);

}  // namespace abh
