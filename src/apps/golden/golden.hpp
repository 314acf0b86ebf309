#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/types.hpp"
#include "device/memory.hpp"
#include "files/safetensors.hpp"

// Golden files: safetensors files with numbers of another program. The metadata contains the case (one layer, one block
// or the whole network) and its settings. input.*, weight.* and grad_output.* are inputs. activation.*, output.*,
// grad_input.* and grad_weight.* are compared. Format, and how to write such a file: docs/golden.md.
namespace abh {

// One golden file. Content that cannot be used is an Error. The class records the tensors that a case reads, so unused
// tensors are detected.
class GoldenFile {
 public:
  explicit GoldenFile(const std::string& path) : file_(SafetensorsFile::read(path)) {}

  const std::string& path() const { return file_.path(); }
  const std::map<std::string, std::string>& metadata() const { return file_.metadata(); }
  // Tensors in the order of their data.
  const std::vector<SafetensorsTensor>& tensors() const { return file_.tensors(); }
  bool has(const std::string& tensor) const { return file_.has(tensor); }
  bool has_setting(const std::string& key) const { return metadata().count(key) != 0; }
  // True if there is a gradient to compare.
  bool compares_gradients() const;

  // Value of a required metadata key.
  const std::string& setting(const std::string& key) const;
  // Metadata value as a number from low to high; `otherwise` if the key is absent.
  double real_setting(const std::string& key, double otherwise, double low, double high) const;
  Index integer_setting(const std::string& key, Index otherwise, Index low, Index high) const;

  // Shape of a required tensor with `rank` dimensions, none of them empty.
  std::vector<Index> shape(const std::string& tensor, std::size_t rank) const;
  // Elements of a required tensor of this shape, F64.
  std::vector<double> reals(const std::string& tensor, const std::vector<Index>& shape);
  // The same for I32; each element is from low to high, or equal to `also`.
  std::vector<Token> tokens(const std::string& tensor, const std::vector<Index>& shape, Token low, Token high,
                            Token also);

  // Error if there is an input.*, weight.* or grad_output.* that no case has read, or a tensor of an unknown kind.
  void require_all_taken() const;

  [[noreturn]] void fail(const std::string& what) const;

 private:
  SafetensorsFile file_;
  std::set<std::string> taken_;
};

// Results of a case, with the names of the tensors in the file.
struct GoldenResult {
  std::vector<Index> shape;
  std::vector<double> values;
  Index number = 0;  // number of an activation in the order of computation, from 1
};
using GoldenResults = std::map<std::string, GoldenResult>;

// Difference between one result and the tensor in the file.
struct GoldenComparison {
  std::string name;
  std::vector<Index> shape;
  double error;
  Index number;  // as above
};

// Compares every activation.*, output.*, grad_input.* and grad_weight.* of the file with the result of the same name,
// first the activations in the order of computation:
//
//   error = max |got - reference| / scale,
//   scale = max(max |reference| of this tensor, 0.01 max |reference| of all tensors of its kind in the file)
//
// The second part of the scale is for gradients that are 0 except for rounding errors, such as that of a key bias. The
// scale of activations has only the first part. The error is NaN if either side has a NaN or an infinity. Throws Error
// for a name or shape that the case does not produce, or if there is nothing to compare.
std::vector<GoldenComparison> compare_with(const GoldenFile& file, const GoldenResults& results);

// The program `golden` (see its --help). Exit status: 0 if every tensor of every file is within tolerance, 1 if a
// tensor is not, 2 if a file cannot be used; the largest status of all files. UsageError if the command line is wrong.
int golden_main(int argc, char** argv);

template <class Device, class T>
class GoldenCases;  // golden_cases.hpp

using GoldenShape = std::vector<Index>;

// Array in device memory; the pointer is null if the array has no elements.
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

// Tensor of the file that is an input of a case or is compared with a result.
struct GoldenTensor {
  std::string name;
  GoldenShape shape;
  bool heads_first = false;  // true: shape (b, n, c, k) in the file, (b, c, n, k) in the array
};

}  // namespace abh
