#include "extras/reversible/weighted_sum.hpp"
#include "extras/reversible/weighted_sum_case.hpp"
#include "tests/harness/layer_case.hpp"

namespace abh {
namespace {

TEST_CASE("weighted sum forward and backward", "[weighted_sum]") {
  for (Index count : {1, 7, 16, 37, 111}) {
    for (const auto& [p, q] : {std::pair(1.0, -1.0), std::pair(0.5, 0.5), std::pair(-0.3, 1.7)}) {
      check_layer(WeightedSumCase{.count = count, .p = p, .q = q});
    }
  }
}

TEST_CASE("weighted sum over several tasks", "[weighted_sum]") {
  for (Index count : {16383, 16385, 40001}) check_threads(WeightedSumCase{.count = count, .p = 0.7, .q = 0.2}, 1);
}

// The chapter's example, in place on both sides: the difference undoes the sum.
TEST_CASE("weighted sum: difference and mean, in place", "[weighted_sum][gpu]") {
  for_each_device(2, [](auto& device) {
    using Device = std::remove_reference_t<decltype(device)>;
    Array<float> a = {3, -2, 8}, b = {1, 2, -4}, d_out = {6, 0, -1}, d_b(3);
    weighted_sum_forward<Device, float>(device, a.data(), 1, a.data(), -1, b.data(), 3);
    wait_for(device);
    CHECK(a == Array<float>{2, -4, 12});
    weighted_sum_forward<Device, float>(device, b.data(), 0.5, a.data(), 0.5, b.data(), 3);
    wait_for(device);
    CHECK(b == Array<float>{1.5f, -1, 4});
    weighted_sum_backward<Device, float>(device, d_out.data(), d_b.data(), 0.5, -2, d_out.data(), 3);
    wait_for(device);
    CHECK(d_out == Array<float>{3, 0, -0.5f});
    CHECK(d_b == Array<float>{-12, 0, 2});
  });
}

TEST_CASE("weighted sum of empty arrays", "[weighted_sum][gpu]") {
  for_each_device(2, [](auto& device) {
    using Device = std::remove_reference_t<decltype(device)>;
    weighted_sum_forward<Device, float>(device, nullptr, 1, nullptr, 1, nullptr, 0);
    weighted_sum_backward<Device, float>(device, nullptr, nullptr, 1, 1, nullptr, 0);
    CHECK(device.workspace.peak() == 0);
  });
}

TEST_CASE("weighted sum: SIMD widths agree at every odd size", "[weighted_sum]") {
  check_widths([](Index size) { return WeightedSumCase{.count = size, .p = 0.5, .q = 0.5}; });
}

TEST_CASE("weighted sum: GPU kernels at every size", "[weighted_sum][gpu]") {
  check_gpu("weighted_sum", WeightedSumCase{.count = 3 * 37 * 40});
  for (const Index count : {1, 3, 4, 5, 7, 8, 9, 2047, 2048, 2049}) {
    check_gpu("weighted_sum", WeightedSumCase{.count = count, .p = 0.5, .q = 0.5});
  }
  check_alignment(WeightedSumCase{.count = 2048 + 333}, 0);
}

}  // namespace
}  // namespace abh
