// libFuzzer target: no input may crash the safetensors reader, and accepted input must survive a round trip. run.sh
// runs it.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "files/safetensors.hpp"

namespace {

using abh::SafetensorsFile;
using abh::SafetensorsOutput;
using abh::SafetensorsTensor;

// A finding: libFuzzer keeps the input that led here.
void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "fuzz_safetensors: violated: %s\n", what);
  std::abort();
}

// The file, or empty with the message in `error`. Any exception except abh::Error escapes and is a finding.
template <class Load>
std::optional<SafetensorsFile> load(Load load_file, std::string& error) {
  try {
    return load_file();
  } catch (const abh::Error& thrown) {
    error = thrown.what();
    require(error.find('\n') == std::string::npos, "a message is one line");
    return std::nullopt;
  }
}

std::string bytes_of(const SafetensorsTensor& tensor) {
  const abh::Index bytes = tensor.count() * element_size(tensor.dtype);
  return {reinterpret_cast<const char*>(tensor.data), static_cast<std::size_t>(bytes)};
}

void require_same(const SafetensorsTensor& left, const SafetensorsTensor& right) {
  require(left.dtype == right.dtype && left.shape == right.shape && bytes_of(left) == bytes_of(right), "same tensor");
}

// Whether the typed access takes exactly the tensor's own type and shape; also loads an element through the pointer,
// which the sanitizer checks for its alignment.
template <class T>
void touch(const SafetensorsFile& file, const SafetensorsTensor& tensor) {
  std::vector<abh::Index> longer = tensor.shape;
  longer.push_back(1);
  for (const std::vector<abh::Index>& shape : {tensor.shape, longer}) {
    bool taken = true;
    try {
      const T* data = file.data<T>(tensor.name, shape);
      if (tensor.count() > 0) {
        volatile T element = data[tensor.count() - 1];
        static_cast<void>(element);
      }
    } catch (const abh::Error&) {
      taken = false;
    }
    require(taken == (tensor.dtype == abh::dtype_of<T> && shape == tensor.shape), "typed access");
  }
}

const std::string& temporary_path() {
  static const std::string path =
      (std::filesystem::temp_directory_path() / ("fuzz_safetensors_" + std::to_string(::getpid()))).string();
  return path;
}

// Writes an accepted file with our writer, reads it back and compares.
void round_trip(const SafetensorsFile& file) {
  std::vector<SafetensorsOutput> outputs;
  for (const SafetensorsTensor& tensor : file.tensors()) {
    outputs.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.data});
  }
  abh::write_safetensors(temporary_path(), outputs, file.metadata());
  const SafetensorsFile again = SafetensorsFile::read(temporary_path());
  require(again.tensors().size() == file.tensors().size(), "round trip keeps every tensor");
  for (const SafetensorsTensor& tensor : file.tensors()) require_same(tensor, again.tensor(tensor.name));
  for (const auto& [key, value] : file.metadata()) {
    require(key.ends_with("crc32") || again.metadata().at(key) == value, "round trip keeps metadata");
  }
}

// The same bytes by way of a file on disk must be judged the same.
void compare_with_read(const std::uint8_t* data, std::size_t size, bool accepted, const std::string& error) {
  std::ofstream(temporary_path(), std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  std::string read_error;
  const bool read = load([] { return SafetensorsFile::read(temporary_path()); }, read_error).has_value();
  require(read == accepted && read_error == error, "read and parse agree");
}

// Duplicate and non-UTF-8 names never come out of the reader, so the writer is tried with the raw input as well.
void write_raw_names(const std::uint8_t* data, std::size_t size) {
  const std::string name(reinterpret_cast<const char*>(data), size);
  const float value = 1;
  std::string error;
  for (const SafetensorsOutput& second :
       {SafetensorsOutput{"other", abh::Dtype::F32, {1}, &value}, SafetensorsOutput{name, abh::Dtype::F32, {1}, &value},
        SafetensorsOutput{"negative", abh::Dtype::F32, {-1}, &value}}) {
    const auto written = load(
        [&] {
          abh::write_safetensors(temporary_path(), {{name, abh::Dtype::F32, {}, &value}, second}, {});
          return SafetensorsFile::read(temporary_path());
        },
        error);
    require(!written || (written->has(name) && second.name == "other"), "writer accepts only what can be read");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  std::string error;
  const auto file = load([&] { return SafetensorsFile::parse({bytes, bytes + size}, temporary_path()); }, error);
  if (file) {
    require(!file->has("__metadata__"), "metadata is no tensor");
    for (const SafetensorsTensor& tensor : file->tensors()) {
      require_same(tensor, file->tensor(tensor.name));
      touch<double>(*file, tensor);
      touch<float>(*file, tensor);
      touch<std::int32_t>(*file, tensor);
    }
  }

  // A file takes a thousand times as long as memory. Every 256th input, and every 64th accepted input, is enough.
  static std::uint64_t inputs = 0;
  static std::uint64_t accepted = 0;
  if (inputs++ % 256 == 0) {
    compare_with_read(data, size, file.has_value(), error);
    write_raw_names(data, size);
  }
  if (file && accepted++ % 64 == 0) round_trip(*file);
  if (inputs == 1) {
    std::atexit([] { std::filesystem::remove(temporary_path()); });
  }
  return 0;
}
