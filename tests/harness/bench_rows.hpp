#pragma once

// Rows that bench must print for its layers. The test of bench has the rows of the core; features add theirs:
//
//     const Rows<BenchRowsOf> bench = {[](const BenchSizes& s) { return both_passes(...); }};

#include <functional>
#include <string>
#include <vector>

#include "tests/harness/rows.hpp"

namespace abh {

// Sizes of the model, as in the names of arrays. T, A: bytes of a number of type T, and of type Accum<T>.
struct BenchSizes {
  double B, C, D, N, F, V, layers, T, A;
  bool joins_layers = false;

  double K() const { return D / N; }
  double rows() const { return B * C * D; }         // numbers in activations of D channels
  double statistics() const { return B * N * C; }   // numbers in an array of one number per head and position
  double pairs() const { return C * (C + 1) / 2; }  // of a query and a key that it attends to
};

struct BenchRow {
  std::string layer, pass;
  double flops, bytes;
};

using BenchRowsOf = std::function<std::vector<BenchRow>(const BenchSizes&)>;

// Numbers in the arrays of a layer. Both passes read or write each array, and backward the gradients, too.
struct BenchArrays {
  double in = 0;                 // activations; the gradients have type T
  double weights = 0;            // the gradients have type Accum<T>
  double wide_in = 0;            // inputs of type Accum<T>, with gradients of this type
  double out = 0, wide_out = 0;  // outputs (in backward their gradients), saved arrays and constants
};

// elements, forward, backward: the header of the layer gives the flops per element of both passes.
inline std::vector<BenchRow> both_passes(const BenchSizes& s, const std::string& layer, double elements, double forward,
                                         double backward, const BenchArrays& a) {
  const double bytes = s.T * (a.in + a.weights + a.out) + s.A * (a.wide_in + a.wide_out);
  return {{layer, "forward", forward * elements, bytes},
          {layer, "backward", backward * elements, bytes + s.T * a.in + s.A * (a.weights + a.wide_in)}};
}

// Arrays of attention and of pooling.
inline BenchArrays attention_arrays(const BenchSizes& s) {
  return {.in = 3 * s.rows(), .out = s.rows(), .wide_out = s.statistics()};
}
inline BenchArrays pooling_arrays(const BenchSizes& s) {
  return {.in = s.rows(), .wide_in = s.statistics(), .out = s.rows(), .wide_out = 2 * s.statistics()};
}

}  // namespace abh
