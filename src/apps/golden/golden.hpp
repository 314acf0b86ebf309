#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/types.hpp"
#include "device/memory.hpp"
#include "files/safetensors.hpp"

// Golden files: numbers that somebody else's code computed, as safetensors. The metadata names the case (one layer, one
// block or the whole network) and its settings; input.*, weight.* and grad_output.* go in; activation.*, output.*,
// grad_input.* and grad_weight.* are compared. The format, and how to write such a file: docs/golden.md.
namespace abh {

// One golden file, read strictly: whatever cannot be used is an Error. It remembers what a case took of it, so that a
// tensor that plays no part is found.
class GoldenFile {
 public:
  explicit GoldenFile(const std::string& path) : file_(SafetensorsFile::read(path)) {}

  const std::string& path() const { return file_.path(); }
  const std::map<std::string, std::string>& metadata() const { return file_.metadata(); }
  // In the order of their data.
  const std::vector<SafetensorsTensor>& tensors() const { return file_.tensors(); }
  bool has(const std::string& tensor) const { return file_.has(tensor); }
  bool has_setting(const std::string& key) const { return metadata().count(key) != 0; }
  // Whether there is a gradient to compare.
  bool compares_gradients() const;

  // The value of a metadata key that must be there.
  const std::string& setting(const std::string& key) const;
  // A metadata value as a number from low to high; `otherwise` where the key is absent.
  double real_setting(const std::string& key, double otherwise, double low, double high) const;
  Index integer_setting(const std::string& key, Index otherwise, Index low, Index high) const;

  // The shape of a tensor that must be there with `rank` dimensions, none of them empty.
  std::vector<Index> shape(const std::string& tensor, std::size_t rank) const;
  // The elements of a tensor that must be there with this shape, F64.
  std::vector<double> reals(const std::string& tensor, const std::vector<Index>& shape);
  // The same, I32, each from low to high, or `also`.
  std::vector<Token> tokens(const std::string& tensor, const std::vector<Index>& shape, Token low, Token high,
                            Token also);

  // Error if there is an input.*, weight.* or grad_output.* that nobody took, or a tensor of no known kind.
  void require_all_taken() const;

  [[noreturn]] void fail(const std::string& what) const;

 private:
  SafetensorsFile file_;
  std::set<std::string> taken_;
};

// The results of a case, under the names that the tensors have in a file.
struct GoldenResult {
  std::vector<Index> shape;
  std::vector<double> values;
  Index number = 0;  // of an activation, in the order of computation, from 1
};
using GoldenResults = std::map<std::string, GoldenResult>;

// How far one tensor is from the file's.
struct GoldenComparison {
  std::string name;
  std::vector<Index> shape;
  double error;
  Index number;  // as above
};

// Compares every activation.*, output.*, grad_input.* and grad_weight.* of the file with the result of its name, first
// activations in the order of computation:
//
//   error = max |got - reference| / scale,
//   scale = max(max |reference| of this tensor, 0.01 max |reference| of all tensors of its kind in the file)
//
// The second part of the scale is for gradients that are 0 but for rounding, as that of a key bias; activations are
// scaled by the first alone. The error is NaN
// where either side has a NaN or an infinity. Error for a name or shape that the case does not produce, or if there is
// nothing to compare.
std::vector<GoldenComparison> compare_with(const GoldenFile& file, const GoldenResults& results);

// The program `golden` (see its --help). Status: 0 if every tensor of every file is within tolerance, 1 if one is not,
// 2 if a file cannot be used; for several files the worst. UsageError if the command line is wrong.
int golden_main(int argc, char** argv);

template <class Device, class T>
class GoldenCases;  // golden_cases.hpp

using GoldenShape = std::vector<Index>;

// An array in device memory; its pointer is null when it has no elements.
template <class Device, class Element>
class GoldenArray {
 public:
  GoldenArray(Device& device, Index count)
      : memory_(device.memory(), static_cast<std::size_t>(count) * sizeof(Element)), count_(count) {
    if (count) device.set_zero(data(), count);
  }
  GoldenArray(Device& device, const std::vector<Element>& values)
      : GoldenArray(device, static_cast<Index>(values.size())) {
    if (count_) device.copy_from_host(data(), values.data(), count_);
  }
  Element* data() const { return memory_.template as<Element>(); }
  Index count() const { return count_; }

 private:
  DeviceMemory memory_;
  Index count_;
};

// A tensor of the file that an array of a case takes or is compared with.
struct GoldenTensor {
  std::string name;
  GoldenShape shape;
  bool heads_first = false;  // (b, n, c, k) in the file, in the array rows of all heads: (b, c, n, k)
};

}  // namespace abh
