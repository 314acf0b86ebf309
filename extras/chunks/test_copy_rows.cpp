// Rows are copied or added, and no other memory is changed.

#include <algorithm>
#include <string>
#include <utility>

#include "extras/chunks/copy_rows.hpp"
#include "tests/harness/layer_case.hpp"
#include "tests/harness/plain_and_cpu.hpp"

namespace abh {
namespace {

template <class T, class Device>
void check_place(Device& device) {
  for (const auto& [rows, columns] : {std::pair<Index, Index>{1, 1}, {5, 12}, {3, 37}, {37, 3}, {70, 128}, {2, 300}}) {
    for (const auto& [to_stride, from_stride] :
         {std::pair(columns, columns), std::pair(columns + 3, columns + 8), std::pair(columns + 5, columns)}) {
      CAPTURE(rows, columns, to_stride, from_stride);
      Array<T> from(static_cast<std::size_t>(rows * from_stride));
      Array<T> to(static_cast<std::size_t>(rows * to_stride), T(0.5f));
      for (std::size_t i = 0; i < from.size(); ++i) from[i] = T(static_cast<float>(i % 61) - 7);
      CopyRows<T> a{.to = to.data(),
                    .to_stride = to_stride,
                    .from = from.data(),
                    .from_stride = from_stride,
                    .rows = rows,
                    .columns = columns};
      for (const float factor : {1.0f, 2.0f}) {
        a.add = factor == 2;  // the second time on the result of the first
        copy_rows<Device, T>(device, a);
        wait_for(device);
        Index wrong = 0;
        for (Index row = 0; row < rows; ++row) {
          for (Index column = 0; column < to_stride; ++column) {
            const auto got = static_cast<float>(to[static_cast<std::size_t>(row * to_stride + column)]);
            const bool inside = column < columns;
            const float number =
                inside ? static_cast<float>(from[static_cast<std::size_t>(row * from_stride + column)]) : 0;
            wrong += !(got == (inside ? factor * number : 0.5f));
          }
        }
        CHECK(wrong == 0);
      }
    }
  }
}

TEST_CASE("copy_rows: rows are copied and added, and nothing else is written", "[copy_rows][gpu]") {
  for_each_cpu(3, [](auto& device, const std::string&) { check_place<float>(device); });
  on_plain_and_cpu([](auto& device) { check_place<double>(device); }, 3);
  for_each_gpu([](auto& device, const std::string&) {
    check_place<float>(device);
    check_place<bf16>(device);
  });
}

TEST_CASE("copy_rows: zeros fill all of an array and nothing else", "[copy_rows][gpu]") {
  for_each_device(3, [](auto& device) {
    for (const Index count : {0, 1, 65536, 65537, 200001}) {
      INFO(count << " numbers");
      Array<float> to(static_cast<std::size_t>(count + 1), 0.5f);
      device.set_zero(to.data(), count);
      wait_for(device);
      CHECK(std::count(to.begin(), to.end() - 1, 0.0f) == count);
      CHECK(to.back() == 0.5f);
    }
  });
}

TEST_CASE("copy_rows: no rows, no columns", "[copy_rows][gpu]") {
  for_each_device(1, []<class Device>(Device& device) {
    Array<float> to(6, 0.5f), from(6, 1.0f);
    for (const auto& [rows, columns] : {std::pair<Index, Index>{0, 3}, {2, 0}}) {
      copy_rows<Device, float>(
          device,
          {.to = to.data(), .to_stride = 3, .from = from.data(), .from_stride = 3, .rows = rows, .columns = columns});
      wait_for(device);
      CHECK(to == Array<float>(6, 0.5f));
    }
  });
}

}  // namespace
}  // namespace abh
