#include "extras/positions/rescale.hpp"
#include "extras/positions/rescale_case.hpp"
#include "tests/harness/layer_case.hpp"

namespace abh {
namespace {

std::size_t size(Index count) { return static_cast<std::size_t>(count); }

TEST_CASE("rescale: every derivative, at every SIMD width", "[rescale]") {
  check_layer(RescaleCase{.BC = 5, .N = 2, .K = 7});
  check_layer(RescaleCase{.BC = 35, .N = 1, .K = 3, .scale = 0.5, .offset = 2});
  check_layer(RescaleCase{.BC = 3, .N = 3, .K = 19, .scale = 4, .offset = -1, .gap = 5, .d_gap = 2, .out_gap = 3});
  check_widths([](Index size) { return RescaleCase{.BC = 3, .N = 2, .K = size + 2}; });
}

TEST_CASE("rescale: with two channels only the larger is left", "[rescale][gpu]") {
  const RescaleCase layer{1, 2, 2};
  for_each_device(1, [&](auto& device) {
    const Array<float> out = run_forward<float>(layer, device, {{1, 4, 7, -2}})[0];
    const Array<double> d_in = run_backward<float>(layer, device, {{1, 4, 7, -2}}, {{3, 1, 2, -5}})[0];
    const Array<double> expected = {-std::sqrt(0.5), std::sqrt(0.5), std::sqrt(0.5), -std::sqrt(0.5)};
    for (std::size_t k = 0; k < 4; ++k) {
      CHECK_FALSE(!(std::abs(double(out[k]) - expected[k]) <= 1e-5));
      CHECK_FALSE(!(std::abs(d_in[k]) <= 1e-5));
    }
  });
}

TEST_CASE("rescale: the worked example of the chapter", "[rescale]") {
  const RescaleCase layer{1, 1, 3};
  const auto check = [&](auto& device) {
    const Array<double> out = run_forward<double>(layer, device, {{1, 3, 5}})[0];
    const Array<double> d_in = run_backward<double>(layer, device, {{1, 3, 5}}, {{4, 1, 1}})[0];
    const Array<double> expected_out = {-1, 0, 1}, expected_d_in = {0.25, -0.5, 0.25};
    for (std::size_t k = 0; k < 3; ++k) {
      CHECK_FALSE(!(std::abs(out[k] - expected_out[k]) <= 1e-5));
      CHECK_FALSE(!(std::abs(d_in[k] - expected_d_in[k]) <= 1e-5));
    }
  };
  PlainDevice plain;
  CpuDevice<Isa::baseline> cpu(1);
  check(plain);
  check(cpu);
}

TEST_CASE("rescale: a product is bounded, and the gradient is orthogonal to the row", "[rescale][gpu]") {
  const Index rows = 9, K = 16;
  const RescaleCase layer{.BC = rows, .N = 1, .K = K, .scale = 1000};
  const Array<float> in = converted<float>(random_values(layer.inputs(), 1))[0];
  const Array<float> d_out = converted<float>(random_values(layer.outputs(), 2))[0];
  for_each_device(2, [&](auto& device) {
    const Array<float> out = run_forward<float>(layer, device, {in})[0];
    const Array<double> d_in = run_backward<float>(layer, device, {in}, {d_out})[0];
    for (Index row = 0; row < rows; ++row) {
      double sum = 0, square = 0, d_sum = 0, d_along = 0, d_largest = 0;
      for (std::size_t k = size(row * K); k < size(row * K + K); ++k) {
        sum += double(out[k]);
        square += double(out[k]) * double(out[k]);
        d_sum += d_in[k];
        d_along += d_in[k] * double(out[k]);
        d_largest = std::max(d_largest, std::abs(d_in[k]));
      }
      CHECK_FALSE(!(std::abs(sum) <= 1e-5));
      CHECK_FALSE(!(std::abs(square - double(K - 1)) <= 1e-4));
      CHECK_FALSE(!(d_largest > 0));
      CHECK_FALSE(!(std::abs(d_sum) <= 1e-5 * d_largest));
      CHECK_FALSE(!(std::abs(d_along) <= 1e-5 * d_largest));
    }
  });
}

TEST_CASE("rescale: a head with equal channels", "[rescale][gpu]") {
  const RescaleCase layer{1, 2, 4};
  const Values<float> in = {{3, 3, 3, 3, 1, 2, 3, 4}}, d_out = {{1, 2, 3, 6, 1, 0, 0, 0}};
  for_each_device(2, [&](auto& device) {
    const Array<float> out = run_forward<float>(layer, device, in)[0];
    const Array<double> d_in = run_backward<float>(layer, device, in, d_out)[0];
    const Array<double> slope = {-2e5, -1e5, 0, 3e5};  // (d_out - 3) / epsilon
    for (std::size_t k = 0; k < 4; ++k) {
      CHECK(out[k] == 0);
      CHECK_FALSE(!(std::abs(d_in[k] - slope[k]) <= 0.1));
      CHECK_FALSE(!(std::abs(d_in[4 + k]) <= 1));
    }
  });
}

// Both passes in place.
template <class Device>
void check_rescales_in_place(Device& device, const RescaleCase& layer) {
  const Array<float> in = converted<float>(random_values(layer.inputs(), 3))[0];
  const Array<float> d_out = converted<float>(random_values(layer.outputs(), 4))[0];
  Array<float> rows = in, d_rows = d_out, deviation_bcn(size(layer.BC * layer.N));
  rescale_forward<Device, float>(device, {.out_bch = rows.data(),
                                          .deviation_bcn = deviation_bcn.data(),
                                          .in_bch = rows.data(),
                                          .BC = layer.BC,
                                          .N = layer.N,
                                          .K = layer.K});
  rescale_backward<Device, float>(device, {.d_in_bch = d_rows.data(),
                                           .d_out_bch = d_rows.data(),
                                           .out_bch = rows.data(),
                                           .deviation_bcn = deviation_bcn.data(),
                                           .BC = layer.BC,
                                           .N = layer.N,
                                           .K = layer.K});
  wait_for(device);
  CHECK(rows == run_forward<float>(layer, device, {in})[0]);
  CHECK(converted<double>(Values<float>{d_rows})[0] == run_backward<float>(layer, device, {in}, {d_out})[0]);
}

TEST_CASE("rescale: may work in place", "[rescale][gpu]") {
  for_each_device(2, [&](auto& device) {
    check_rescales_in_place(device, {9, 3, 17});
    check_rescales_in_place(device, {9, 3, 40});
  });
}

TEST_CASE("rescale: no rows", "[rescale][gpu]") { check_no_rows(RescaleCase{.BC = 0, .N = 2, .K = 3}); }

TEST_CASE("rescale: on the GPU, rows and strides of any size", "[rescale][gpu]") {
  for (Index K : {3, 7, 37, 64, 261, 264}) {
    check_gpu("rescale", RescaleCase{.BC = 15, .N = 2, .K = K});
  }
  check_gpu("rescale", RescaleCase{.BC = 3 * 37, .N = 3, .K = 40, .scale = 2, .offset = 1},
            RescaleCase{.BC = 5, .N = 2, .K = 40, .scale = 1, .offset = 0, .gap = 3, .d_gap = 8, .out_gap = 5});
  check_alignment(RescaleCase{.BC = 3, .N = 2, .K = 8});
}

}  // namespace
}  // namespace abh
