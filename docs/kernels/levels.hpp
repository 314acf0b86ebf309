#pragma once

// The levels of all ladders for the host (ladder.cu): each maps arrays of numbers to arrays of numbers.

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "cuda/gpu.hpp"

namespace abh::kernels {

// An array of a case. type: f4, bf (bf16) or i4 (integers). result: true if a kernel writes it.
struct Array {
  std::string name, type;
  std::vector<long> shape;
  std::vector<float> x;
  bool result = false;
};
// Arrays and sizes of one call.
struct Case {
  std::vector<Array> arrays;
  std::vector<int> sizes;
  Array& operator[](const std::string& name) {
    for (Array& array : arrays) {
      if (array.name == name) return array;
    }
    arrays.push_back({name, "f4", {}, {}});
    return arrays.back();
  }
};

struct Level {
  std::string operation;
  int number;
  std::string idea;
  std::function<void(Case&, bool records)> run;  // records: names the arrays for the recorder
  // Largest error compared with the plain loops in double, relative to the largest number.
  double tolerance = 2e-6;
};
template <Backend backend>
std::vector<Level> ladder();

// Layers of cuda/ at sizes that a page can show: operation `production`, numbered in order.
template <Backend backend>
std::vector<Level> production();
// The kernels of basics.md, numbered in order.
template <Backend backend>
std::vector<Level> basics();

}  // namespace abh::kernels
