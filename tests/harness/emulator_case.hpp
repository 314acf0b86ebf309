#pragma once

// Helpers for the tests of the emulator: they launch kernels in every order and return the errors of launch().

#include <initializer_list>
#include <string>
#include <vector>

#include "catch.hpp"
#include "cuda/emulator/emulator.hpp"

namespace emulator_test {

using emulator::launch;
using emulator::Order;
using emulator::shared_memory;

// The order that a test leaves is the order of the next one.
struct InOrder {
  explicit InOrder(Order order) { emulator::set_order(order); }
  ~InOrder() { emulator::set_order({}); }
};

// Runs a test in every order.
template <class Test>
void in_all_orders(const Test& test) {
  for (const Order order : {Order{}, Order{Order::reverse, 0}, Order{Order::shuffled, 1}, Order{Order::shuffled, 2}}) {
    INFO("order " << order.kind << ", seed " << order.seed);
    const InOrder set(order);
    test();
  }
}

// The contents of an array of `count` elements, first `before`, after a kernel. The array is its first argument.
template <class Element, class Kernel, class... Arguments>
std::vector<Element> results_of(Kernel kernel, dim3 grid, dim3 block, std::size_t count, const Element& before,
                                Arguments... arguments) {
  std::vector<Element> results(count, before);
  launch(kernel, grid, block, 0, nullptr, results.data(), arguments...);
  return results;
}

// Message of the error that launch() throws; "" without an error.
template <class Kernel, class... Arguments>
std::string error_of(Kernel kernel, dim3 grid, dim3 block, std::size_t shared_bytes, Arguments... arguments) {
  try {
    launch(kernel, grid, block, shared_bytes, nullptr, arguments...);
  } catch (const emulator::Error& error) {
    return error.what();
  }
  return "";
}

inline void require_words(const std::string& text, std::initializer_list<const char*> words) {
  INFO("message: " << text);
  CHECK(text.rfind("emulator: ", 0) == 0);
  CHECK(text.find('\n') == std::string::npos);
  for (const char* word : words) {
    INFO("expected: " << word);
    CHECK(abh::contains(text, word));
  }
}

struct Floats {
  float x[256];
};

// out[block] = sum of in over the block, through shared memory.
inline __global__ void sum_kernel(float* out, const float* in) {
  auto& shared = shared_memory<Floats>();
  const unsigned t = threadIdx.x, threads = blockDim.x;
  shared.x[t] = in[blockIdx.x * threads + t];
  for (unsigned half = threads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (t < half) shared.x[t] += shared.x[t + half];
  }
  if (t == 0) out[blockIdx.x] = shared.x[0];
}

inline __global__ void empty_kernel() {}

}  // namespace emulator_test
