#pragma once

// The arrays of a case in device memory. The destructor frees them.

#include "base/bf16.hpp"
#include "cuda/platform.hpp"
#include "docs/kernels/levels.hpp"
#if defined(EMULATOR_RECORDS)
#include "cuda/emulator/record.hpp"
#endif

namespace abh {
inline namespace ABH_BACKEND {

class OnDevice {
 public:
  OnDevice(kernels::Case& on_host, [[maybe_unused]] bool records) : host_(on_host) {
    for (kernels::Array& array : host_.arrays) {
      void* memory = nullptr;
      require(cudaMalloc(&memory, bytes_of(array) + 16), "memory");
      memory_.push_back(memory);
      if (!array.result || !array.x.empty()) copy(array, memory, true);
#if defined(EMULATOR_RECORDS)
      if (records) emulator::record::name_array(memory, array.name, array.type, array.shape);
#endif
    }
  }
  ~OnDevice() {
    for (void* memory : memory_) static_cast<void>(cudaFree(memory));
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  template <class T>
  T* at(const std::string& name) {
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      if (host_.arrays[i].name == name) return static_cast<T*>(memory_[i]);
    }
    throw Error("a case without the array " + name);
  }
  int size(std::size_t i) const { return host_.sizes.at(i); }

  // Waits for the results.
  void copy_back() {
    require(cudaStreamSynchronize(nullptr), "a kernel");
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      kernels::Array& array = host_.arrays[i];
      if (!array.result) continue;
      array.x.resize(bytes_of(array) / size_of(array));
      copy(array, memory_[i], false);
    }
  }

 private:
  static std::size_t size_of(const kernels::Array& array) { return array.type == "bf" ? 2 : 4; }
  static std::size_t bytes_of(const kernels::Array& array) {
    std::size_t count = 1;
    for (const long extent : array.shape) count *= static_cast<std::size_t>(extent);
    return count * size_of(array);
  }
  // Copies from the host, converted to the array's type, or back.
  template <class T>
  static void copy_as(std::vector<float>& x, void* memory, bool there) {
    std::vector<T> numbers(x.size());
    if (there) {
      for (std::size_t i = 0; i < x.size(); ++i) numbers[i] = static_cast<T>(x[i]);
    }
    void *to = there ? memory : numbers.data(), *from = there ? numbers.data() : memory;
    require(cudaMemcpyAsync(to, from, x.size() * sizeof(T), cudaMemcpyDefault, nullptr), "copy");
    require(cudaStreamSynchronize(nullptr), "copy");
    if (there) return;
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(numbers[i]);
  }
  static void copy(kernels::Array& array, void* memory, bool there) {
    std::vector<float>& x = array.x;
    if (array.type == "bf") return copy_as<bf16>(x, memory, there);
    if (array.type == "i4") return copy_as<int>(x, memory, there);
    copy_as<float>(x, memory, there);
  }

  kernels::Case& host_;
  std::vector<void*> memory_;
};

}  // namespace ABH_BACKEND
}  // namespace abh
