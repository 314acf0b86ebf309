// The safetensors format: 8 bytes with the length of the header (little-endian), the JSON header, then the data
// section.
//
//   {"__metadata__": {"key": "text", ...}, "NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}
//
// data_offsets count from the start of the data section; the end is exclusive. Tensors are row-major and little-endian.
// Together they cover the data section exactly, without overlaps and holes. Format: github.com/huggingface/safetensors,
// README.
//
// In addition, __metadata__ contains two marks. The writer always writes them, and the reader checks them if they
// exist. Other readers treat them as strings. "abh_version": version of the keys. "abh_crc32": CRC-32 of header and
// data as 8 lower-case hexadecimal digits, computed with zeros in their place. A single mark is an error. Files of the
// first releases have "crc32" instead, for the data section only; files of other programs have no marks. If another
// program changes and saves a file, it copies the marks; the error message explains this.
//
// The reader accepts the same files as the reference (safetensors 0.8.0), except: repeated names, keys or members (the
// reference uses the last); other members of a tensor; a tensor as a JSON array; types that the project does not use
// (4, 6 and 8-bit floats, complex numbers); integers above 2^63 - 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/types.hpp"

namespace abh {

// Value of "abh_version". A new metadata key requires a new version.
inline constexpr Index safetensors_version = 3;

enum class Dtype { F64, F32, F16, BF16, I64, I32, I16, I8, U64, U32, U16, U8, BOOL };

const char* dtype_name(Dtype dtype);                      // as in the format: "F64"
std::string shape_text(const std::vector<Index>& shape);  // "[2, 3]", "[]" for a scalar
Index element_count(const std::vector<Index>& shape);     // product of the extents; 1 for a scalar
Index element_size(Dtype dtype);                          // bytes of one element, 1 to 8

// Dtype whose elements are read as `const T*`; only for types that the project reads.
template <class T>
inline constexpr Dtype dtype_of = T::no_dtype_for_this_type;
template <>
inline constexpr Dtype dtype_of<double> = Dtype::F64;
template <>
inline constexpr Dtype dtype_of<float> = Dtype::F32;
template <>
inline constexpr Dtype dtype_of<std::int32_t> = Dtype::I32;

// Tensor of a file. `data` is not null, is aligned to the element size, has the byte order of this machine, and is
// valid as long as the SafetensorsFile.
struct SafetensorsTensor {
  std::string name;
  Dtype dtype;
  std::vector<Index> shape;  // every extent >= 0; their product times the element size fits an Index
  const std::byte* data;

  Index count() const { return element_count(shape); }
};

// File in memory, completely checked: all returned data lies within the file. Every fault is an Error "path: ..." in
// one line with the tensor, the found and the expected value.
class SafetensorsFile {
 public:
  // Reads the whole file into memory. It is not memory-mapped: the check value needs every byte, and if another process
  // truncates a mapped file, this process gets SIGBUS.
  static SafetensorsFile read(const std::string& path);
  // The same for the bytes of a file; `path` is only for messages.
  static SafetensorsFile parse(std::vector<std::byte> bytes, const std::string& path);

  // Tensors point into the object. Moving keeps the pointers valid; copying is not possible.
  SafetensorsFile(SafetensorsFile&&) = default;
  SafetensorsFile& operator=(SafetensorsFile&&) = default;
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::string& path() const { return path_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // Value of "abh_version"; 0 without marks.
  Index version() const { return version_; }
  // Tensors in the order of their data.
  const std::vector<SafetensorsTensor>& tensors() const { return tensors_; }
  bool has(const std::string& name) const { return position_of_.count(name) != 0; }
  // Error if there is no tensor with this name.
  const SafetensorsTensor& tensor(const std::string& name) const;
  // Elements of a tensor. Error if the tensor is missing or has another type or shape.
  template <class T>
  const T* data(const std::string& name, const std::vector<Index>& shape) const {
    return reinterpret_cast<const T*>(checked_data(name, dtype_of<T>, shape));
  }

 private:
  SafetensorsFile() = default;
  const std::byte* checked_data(const std::string& name, Dtype dtype, const std::vector<Index>& shape) const;

  std::string path_;
  std::vector<std::byte> bytes_;                // the whole file
  std::vector<std::vector<std::byte>> copies_;  // of tensors in bytes_ that are not aligned
  std::map<std::string, std::string> metadata_;
  Index version_ = 0;
  std::vector<SafetensorsTensor> tensors_;
  std::map<std::string, std::size_t> position_of_;  // name -> position in tensors_
};

// Tensor to write; `data` contains the product of `shape` elements and may be null if that is 0.
struct SafetensorsOutput {
  std::string name;
  Dtype dtype;
  std::vector<Index> shape;
  const void* data;
};

// Calls write(data, size) with the bytes of the file, piece by piece. Tensors keep their order, except that wider
// elements come first, so every tensor is aligned without holes. Metadata is sorted by key; the marks are set here. The
// bytes only depend on the arguments, except `path`, which is for messages. The data is read twice: for the check value
// and for writing. Only big-endian machines copy it, one tensor at a time. Error if a name repeats or a text is not
// valid UTF-8.
void safetensors_bytes(const std::string& path, const std::vector<SafetensorsOutput>& tensors,
                       std::map<std::string, std::string> metadata,
                       const std::function<void(const void* data, std::size_t size)>& write);

// Writes the file atomically (AtomicFile). Error also if it cannot be written.
void write_safetensors(const std::string& path, const std::vector<SafetensorsOutput>& tensors,
                       std::map<std::string, std::string> metadata);

}  // namespace abh
