// The safetensors format: 8 bytes of header length (little-endian), a JSON header of that length, then the data
// section.
//
//   {"__metadata__": {"key": "text", ...}, "NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}
//
// data_offsets count from the beginning of the data section, end exclusive. The tensors are row-major and
// little-endian; together they cover the data section exactly: no overlap, no hole. Format:
// github.com/huggingface/safetensors, README.
//
// On top of the format, __metadata__ holds two marks that the writer here always writes and the reader here checks
// where it finds them; other readers see two more strings. "abh_version": which keys the writer knew. "abh_crc32": the
// CRC-32 of header and data, 8 lower-case hexadecimal digits which count as zeros themselves. One without the other is
// an error. Files of the first releases have "crc32" instead, of the data section alone; other people's have nothing.
// A program that saves a file again copies the marks with the other metadata: the message of a mismatch says so.
//
// The reader accepts what the reference accepts (safetensors 0.8.0), with exceptions: names, keys and members that
// stand twice, of which the reference takes the last one; members of a tensor other than the three; a tensor as a JSON
// array; types that nothing here computes with (of 4, 6 and 8 bits, and complex numbers); integers above 2^63 - 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/types.hpp"

namespace abh {

// Written as "abh_version". A key of metadata that is new goes with a number that is new.
inline constexpr Index safetensors_version = 3;

enum class Dtype { F64, F32, F16, BF16, I64, I32, I16, I8, U64, U32, U16, U8, BOOL };

const char* dtype_name(Dtype dtype);                      // "F64", as the format spells it
std::string shape_text(const std::vector<Index>& shape);  // "[2, 3]", "[]" for a scalar
Index element_count(const std::vector<Index>& shape);     // the product; 1 for a scalar
Index element_size(Dtype dtype);                          // bytes of one element, 1 to 8

// The Dtype whose elements can be read through a `const T*`, of the types that anybody reads.
template <class T>
inline constexpr Dtype dtype_of = T::no_dtype_for_this_type;
template <>
inline constexpr Dtype dtype_of<double> = Dtype::F64;
template <>
inline constexpr Dtype dtype_of<float> = Dtype::F32;
template <>
inline constexpr Dtype dtype_of<std::int32_t> = Dtype::I32;

// One tensor of a file that was read. `data` is never null, is aligned to the element size, has the byte order of this
// machine, and lives as long as the SafetensorsFile it came from.
struct SafetensorsTensor {
  std::string name;
  Dtype dtype;
  std::vector<Index> shape;  // every extent >= 0; their product times the element size fits an Index
  const std::byte* data;

  Index count() const { return element_count(shape); }
};

// A file in memory, checked from end to end: whatever is handed out lies within it. Nothing of it is trusted before.
// Everything that can be wrong is an Error "path: ..." in one line that names the tensor, what was found and expected.
class SafetensorsFile {
 public:
  // Reads all of `path` into memory. Not a memory map: the check value needs every byte anyway, and a mapped file that
  // another process cuts short kills this one with SIGBUS.
  static SafetensorsFile read(const std::string& path);
  // The same for the bytes of a file; `path` is only used in messages.
  static SafetensorsFile parse(std::vector<std::byte> bytes, const std::string& path);

  // Tensors point into the object: it can be moved, which keeps them where they are, but not copied.
  SafetensorsFile(SafetensorsFile&&) = default;
  SafetensorsFile& operator=(SafetensorsFile&&) = default;
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::string& path() const { return path_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // The value of "abh_version"; 0 without the marks.
  Index version() const { return version_; }
  // In the order of their data.
  const std::vector<SafetensorsTensor>& tensors() const { return tensors_; }
  bool has(const std::string& name) const { return position_of_.count(name) != 0; }
  // Error if there is none of this name.
  const SafetensorsTensor& tensor(const std::string& name) const;
  // The elements of a tensor that must be there with this element type and exactly this shape, else Error.
  template <class T>
  const T* data(const std::string& name, const std::vector<Index>& shape) const {
    return reinterpret_cast<const T*>(checked_data(name, dtype_of<T>, shape));
  }

 private:
  SafetensorsFile() = default;
  const std::byte* checked_data(const std::string& name, Dtype dtype, const std::vector<Index>& shape) const;

  std::string path_;
  std::vector<std::byte> bytes_;                // the whole file
  std::vector<std::vector<std::byte>> copies_;  // of tensors that lie in bytes_ at an address unfit for their elements
  std::map<std::string, std::string> metadata_;
  Index version_ = 0;
  std::vector<SafetensorsTensor> tensors_;
  std::map<std::string, std::size_t> position_of_;  // name -> position in tensors_
};

// One tensor to be written; `data` holds the product of `shape` elements and may be null if that is 0.
struct SafetensorsOutput {
  std::string name;
  Dtype dtype;
  std::vector<Index> shape;
  const void* data;
};

// Gives the bytes of the file to write(data, size), piece by piece. Tensors are stored in the order given, except that
// wider elements come before narrower ones, which aligns every tensor to its elements without holes. Metadata entries
// are sorted by key; the marks are set here. The bytes depend on the arguments alone, but for `path`, which is only
// used in messages. The data is read twice (check value, writing); only a big-endian machine copies it, tensor by
// tensor. Error if names repeat or texts are not valid UTF-8: no reader would take it.
void safetensors_bytes(const std::string& path, const std::vector<SafetensorsOutput>& tensors,
                       std::map<std::string, std::string> metadata,
                       const std::function<void(const void* data, std::size_t size)>& write);

// Writes the file whole or not at all (AtomicFile). Error also if it cannot be written.
void write_safetensors(const std::string& path, const std::vector<SafetensorsOutput>& tensors,
                       std::map<std::string, std::string> metadata);

}  // namespace abh
