#pragma once

// Arrays of the layer tests: like std::vector, in memory that every device of this build can read and write. On a real
// GPU that is pinned host memory. Otherwise the array ends before a page without access: a layer that reads past the
// end crashes, and the emulator reports a kernel that writes outside the array.

#include <cstddef>
#include <type_traits>
#include <vector>

#include "base/bf16.hpp"
#include "cases/either_pointer.hpp"
#include "device/memory.hpp"

namespace abh {

// Defined in tests/harness/device_array.cpp.
MemorySource test_memory();

// Arrays start at multiples of 16 bytes, the width of a GPU's widest accesses, which leaves few bytes between their end
// and the guard page. shift_array moves the start of one array by some bytes, but by at least one element. It counts
// arrays of floating-point numbers from 0 since its last call, and returns their number.
void* allocate_array(std::size_t bytes, std::size_t number_bytes);
void release_array(void* memory);
Index shift_array(Index array = -1, std::size_t bytes = 0);

template <class T>
struct TestAllocator {
  using value_type = T;
  TestAllocator() = default;
  template <class Other>
  TestAllocator(const TestAllocator<Other>&) {}
  T* allocate(std::size_t count) {
    constexpr bool number = std::is_same_v<T, float> || std::is_same_v<T, bf16>;
    return static_cast<T*>(allocate_array(count * sizeof(T), number ? sizeof(T) : 0));
  }
  void deallocate(T* memory, std::size_t) { release_array(memory); }
  bool operator==(const TestAllocator&) const = default;
};

template <class T>
class Array : public std::vector<T, TestAllocator<T>> {
 public:
  using std::vector<T, TestAllocator<T>>::vector;
};

// In bf16, a test cannot tell which tensors of a layer are bf16 and which are float (statistics, logits and weight
// gradients). An array therefore has both types until its address is taken as one of them.
template <>
class Array<bf16> : public std::vector<bf16, TestAllocator<bf16>> {
 public:
  using std::vector<bf16, TestAllocator<bf16>>::vector;

  EitherPointer<Array, bf16, float> data() { return {this, 0}; }
  EitherPointer<Array, const bf16, const float> data() const { return {const_cast<Array*>(this), 0}; }

  // The numbers as they were last handed out.
  std::vector<double> numbers() const {
    return floats_.empty() ? std::vector<double>(begin(), end()) : std::vector<double>(floats_.begin(), floats_.end());
  }

  // The address of one of them, for EitherPointer.
  template <class Element>
  Element* as() {
    if constexpr (std::is_same_v<Element, bf16>) {
      return std::vector<bf16, TestAllocator<bf16>>::data();
    } else {
      if (floats_.empty()) floats_.assign(begin(), end());
      return floats_.data();
    }
  }

 private:
  std::vector<float, TestAllocator<float>> floats_;
};

template <class T>
bool operator==(const Array<T>& a, const std::vector<T>& b) {
  return std::vector<T>(a.begin(), a.end()) == b;
}

}  // namespace abh
