#pragma once

#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "base/types.hpp"

namespace abh {

// Function that receives an inspected array: its name with the shape suffix, as in the chapter of the block, its
// extents, and its numbers on the host. Called in the order of computation.
using Inspector =
    std::function<void(const std::string& name, const std::vector<Index>& shape, const std::vector<double>& values)>;

// Copies rows of a device array to the host and converts the numbers. Rows are `stride` apart; 0: contiguous. Empty if
// there is no array.
template <class To, class Device, class Number>
std::vector<To> on_host(Device& device, const Number* rows, Index count, Index width, Index stride = 0) {
  std::vector<To> values;
  if (!rows) return values;
  values.reserve(static_cast<std::size_t>(count * width));
  std::vector<Number> row(static_cast<std::size_t>(width));
  for (Index i = 0; i < count; ++i) {
    device.copy_to_host(row.data(), rows + i * stride_or(stride, width), width);
    for (const Number& number : row) values.push_back(static_cast<To>(number));
  }
  return values;
}

// Reports a device array to the inspector. Rows have `width` numbers, the product of the last extents, and are `stride`
// apart; 0: contiguous. Does nothing if there is no array, or for number types of tests.
template <class Device, class Number>
void report(Device& device, const Inspector& inspector, const std::string& name, const Number* rows,
            const std::vector<Index>& shape, Index width, Index stride = 0) {
  if constexpr (std::is_constructible_v<double, Number>) {
    if (!rows) return;
    Index count = 1;
    for (const Index extent : shape) count *= extent;
    inspector(name, shape, on_host<double>(device, rows, width > 0 ? count / width : 0, width, stride));
  }
}

// Inspector that adds a prefix to the names, such as "blocks.0.mixer.".
inline Inspector named(const Inspector& inspector, const std::string& prefix) {
  return [&inspector, prefix](const std::string& name, const std::vector<Index>& shape,
                              const std::vector<double>& values) { inspector(prefix + name, shape, values); };
}

}  // namespace abh
