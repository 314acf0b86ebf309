#pragma once

// The levels of all ladders as the host sees them: numbers in, numbers out (ladder.cu).

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "cuda/gpu.hpp"

namespace abh::kernels {

// An array of a case. type: f4, bf (numbers that bf16 has) or i4 (whole numbers); result: what a kernel writes.
struct Array {
  std::string name, type;
  std::vector<long> shape;
  std::vector<float> x;
  bool result = false;
};
// The arrays of one call and the sizes that they do not tell.
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
  std::function<void(Case&, bool records)> run;  // records: the emulator's recorder learns the arrays' names
  // The largest error beside plain loops in double, as a share of the largest number.
  double tolerance = 2e-6;
};
template <Backend backend>
std::vector<Level> ladder();

// Layers of cuda/ at sizes that a page can show: operation `production`, numbered in the order of their names.
template <Backend backend>
std::vector<Level> production();
// The kernels of basics.md, numbered likewise.
template <Backend backend>
std::vector<Level> basics();

}  // namespace abh::kernels
