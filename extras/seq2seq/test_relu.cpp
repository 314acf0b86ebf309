#include <cmath>
#include <limits>

#include "extras/seq2seq/relu.hpp"
#include "extras/seq2seq/relu_case.hpp"
#include "tests/harness/layer_case.hpp"
#include "tests/harness/row_sums.hpp"

namespace abh {
namespace {

TEST_CASE("relu forward and backward", "[relu]") {
  for (Index count : {1, 7, 16, 37, 111}) check_layer(ReluCase{.count = count});
}

TEST_CASE("relu over several tasks", "[relu]") {
  for (Index count : {16383, 16385, 40001}) check_threads(ReluCase{.count = count}, 1);
}

// ReLU passes positive values unchanged, passes nothing at the point 0, and keeps NaN.
TEST_CASE("relu of zero, of infinities and of NaN", "[relu][gpu]") {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const Array<float> few = {-infinity, -1e-40f, -0.0f, 0.0f, 1e-40f, 3.0f, infinity, nan};
  for_each_device(2, [&](auto& device) {
    using Device = std::remove_reference_t<decltype(device)>;
    Array<float> in(8 * 17), out(in.size()), d_in(in.size()), d_out(in.size(), 2.0f);
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = few[i % 8];
    const Index count = static_cast<Index>(in.size());
    relu_forward<Device, float>(device, out.data(), in.data(), count);
    relu_backward<Device, float>(device, d_in.data(), d_out.data(), in.data(), count);
    wait_for(device);
    for (std::size_t i = 0; i < in.size(); ++i) {
      const std::size_t which = i % 8;
      if (which == 7) {
        CHECK(std::isnan(out[i]));
      } else {
        CHECK(out[i] == (which < 4 ? 0.0f : few[which]));
      }
      CHECK(d_in[i] == (which < 4 ? 0.0f : 2.0f));
    }
    // In place, once the input is no longer needed.
    relu_backward<Device, float>(device, d_out.data(), d_out.data(), in.data(), count);
    wait_for(device);
    CHECK(d_out == d_in);
  });
}

TEST_CASE("relu of an empty array", "[relu][gpu]") {
  for_each_device(2, [](auto& device) {
    using Device = std::remove_reference_t<decltype(device)>;
    relu_forward<Device, float>(device, nullptr, nullptr, 0);
    relu_backward<Device, float>(device, nullptr, nullptr, nullptr, 0);
    CHECK(device.workspace.peak() == 0);
  });
}

TEST_CASE("relu: SIMD widths agree at every odd size", "[relu]") {
  check_widths([](Index size) { return ReluCase{.count = size}; });
}

TEST_CASE("relu: GPU kernels at every size", "[relu][gpu]") {
  check_gpu("relu", ReluCase{.count = 3 * 37 * 40});
  for (const Index count : {1, 3, 4, 5, 7, 8, 9, 2047, 2048, 2049}) {
    check_gpu("relu", ReluCase{.count = count});
  }
  check_alignment(ReluCase{.count = 2048 + 333}, 0);
}

template <class T, class Device>
void check_relu_row_sums(Device& device, const RowSizes& s) {
  check_row_sums<T>(
      device, s,
      [&](T* d_in, const T* d_out, const T* in) { relu_backward<Device, T>(device, d_in, d_out, in, s.BC * s.D); },
      [&](float* d_bias, T* d_in, const T* d_out, const T* in) {
        relu_backward_with_row_sums<Device, T>(device, d_bias, d_in, d_out, in, {s.BC, s.D});
      });
}

TEST_CASE("relu: the gradient with its bias gradient", "[relu][gpu]") {
  for_each_gpu(
      [&](auto& device, const std::string& name) {
        for (const RowSizes& s : all_row_sizes) {
          CAPTURE(name, s.BC, s.D);
          check_relu_row_sums<float>(device, s);
          check_relu_row_sums<bf16>(device, s);
        }
      },
      true);
}

}  // namespace
}  // namespace abh
