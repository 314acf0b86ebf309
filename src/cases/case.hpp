#pragma once

// Case of a layer: sizes, names of the arrays, and calls of its functions. Tests, bench and golden files use the same
// cases.
//
//   struct LayernormCase {
//     std::vector<TensorSpec> inputs() const;   // activations and weights that the outputs depend on
//     std::vector<TensorSpec> outputs() const;
//     std::vector<TensorSpec> saved() const;    // what backward needs of forward beside the outputs
//     template <class Device, class Arrays>
//     void forward(Device&, Arrays& a) const;   // reads a.in, writes a.out and a.saved
//     template <class Device, class Arrays>
//     void backward(Device&, Arrays& a) const;  // reads those and a.d_out, writes a.d_in
//   };
//
// a.in[i].data() is the array of inputs()[i], and so on; Arrays::Number is T. Without saved(), backward needs no
// forward pass. The gradient of an activation is overwritten; the gradient of a weight is added to.

#include <string>
#include <utility>
#include <vector>

#include "base/types.hpp"

namespace abh {

// Description of one array of a case.
struct TensorSpec {
  std::string name;
  std::vector<Index> shape;
  bool weight = false;    // true: the gradient is added to and has type Accum<T>
  double scale = 1;       // standard deviation of test values; for an output, of its gradient
  double offset = 0;      // mean of test values
  bool wide = false;      // true: type Accum<T>, but not a weight: logits, statistics
  bool adds = weight;     // true: the gradient is added to
  bool constant = false;  // true: no gradient: cosines and sines, slopes
  // Elements between rows (last dimension of the shape), and between rows of the gradient.
  Index gap = 0, d_gap = gap;

  Index count() const {
    Index product = 1;
    for (Index extent : shape) product *= extent;
    return product;
  }
};
inline TensorSpec activation(std::string name, std::vector<Index> shape, double scale = 1, double offset = 0) {
  return {.name = std::move(name), .shape = std::move(shape), .scale = scale, .offset = offset};
}
inline TensorSpec weight(std::string name, std::vector<Index> shape, double scale = 1, double offset = 0) {
  return {.name = std::move(name), .shape = std::move(shape), .weight = true, .scale = scale, .offset = offset};
}
inline TensorSpec statistic(std::string name, std::vector<Index> shape) {
  return {.name = std::move(name), .shape = std::move(shape), .wide = true};
}
// Constant input of type Accum<T>, without a gradient.
inline TensorSpec constant(std::string name, std::vector<Index> shape) {
  return {.name = std::move(name), .shape = std::move(shape), .wide = true, .adds = true, .constant = true};
}
inline TensorSpec spread(TensorSpec spec, Index gap, Index d_gap) {
  spec.gap = gap;
  spec.d_gap = d_gap;
  return spec;
}

// Stride of rows with a gap, for layers; 0: contiguous rows.
inline Index stride_with(Index width, Index gap) { return gap > 0 ? width + gap : 0; }

template <class Case>
std::vector<TensorSpec> saved_slots(const Case& layer) {
  if constexpr (requires { layer.saved(); }) {
    return layer.saved();
  } else {
    return {};
  }
}

// Base class for the cases of a feature (apps/feature_cases.hpp): no golden files, no layers for bench.
struct NoCases {
  template <class Golden>
  static void add_golden(std::vector<typename Golden::Case>&) {}
  template <class Bench>
  static void measure(Bench&) {}
};

}  // namespace abh
