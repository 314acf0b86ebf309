#include "cases/gelu.hpp"
#include "layers/gelu.hpp"
#include "tests/harness/layer_case.hpp"

namespace abh {
namespace {

constexpr GeluForm forms[] = {GeluForm::erf, GeluForm::tanh};

TEST_CASE("gelu forward and backward", "[gelu]") {
  for (GeluForm form : forms) {
    for (Index count : {1, 7, 16, 37, 111}) check_layer(GeluCase{.count = count, .form = form});
    check_layer(GeluCase{.count = 67, .form = form, .scale = 4});
  }
}

TEST_CASE("gelu over several chunks", "[gelu]") {
  for (GeluForm form : forms) {
    for (Index count : {8191, 8192, 8193, 30011}) {
      check_float(GeluCase{.count = count, .form = form, .scale = 3}, 1);
      check_threads(GeluCase{.count = count, .form = form, .scale = 3}, 1);
    }
  }
}

// Every device over a fine grid, against the plain loops in double. This is also how the wide lanes
// of exponential, normal_distributions and hyperbolic_tangent are tested: an error of 2 ulp in one of them moves the
// gate, at most 1, by 1.2e-7, and a little more after the final operations.
TEST_CASE("gelu matches its definition on a grid", "[gelu][gpu]") {
  const Index count = 200001;
  Array<float> in, ones(count, 1.0f), out(count), d_in(count);
  for (Index i = 0; i < count; ++i) in.push_back(static_cast<float>(-12 + 24.0 * static_cast<double>(i) / (count - 1)));
  const Array<double> wide_in = converted<double>(Values<float>{in})[0], wide_ones(count, 1.0);
  Array<double> wide_out(count), slope(count);
  for (GeluForm form : forms) {
    PlainDevice plain;
    gelu_forward<PlainDevice, double>(plain, wide_out.data(), wide_in.data(), count, form);
    gelu_backward<PlainDevice, double>(plain, slope.data(), wide_ones.data(), wide_in.data(), count, form);
    const auto check = [&](auto& device, const std::string& name, double slope_tolerance) {
      using Device = std::remove_reference_t<decltype(device)>;
      gelu_forward<Device, float>(device, out.data(), in.data(), count, form);
      gelu_backward<Device, float>(device, d_in.data(), ones.data(), in.data(), count, form);
      wait_for(device);
      double worst_gate = 0, worst_slope = 0;
      for (std::size_t i = 0; i < in.size(); ++i) {
        worst_gate = at_least(worst_gate, std::abs(out[i] - wide_out[i]) / std::max(std::abs(wide_in[i]), 1e-30));
        worst_slope = at_least(worst_slope, std::abs(d_in[i] - slope[i]));
      }
      INFO(name << ", form " << static_cast<int>(form) << ": gate " << worst_gate << ", slope " << worst_slope);
      CHECK_FALSE(!(worst_gate <= 1.5e-7));
      CHECK_FALSE(!(worst_slope <= slope_tolerance));
    };
    for_each_cpu(1, [&](auto& device, const std::string& isa) { check(device, isa, 6e-7); });
    // tanhf may have an error of 2 ulp, 1.2e-7. 1 - tau^2 doubles it, and the factors after it, at most 8 while tau is
    // below 1, increase it.
    for_each_gpu(
        [&](auto& device, const std::string& name) { check(device, name, form == GeluForm::tanh ? 2e-6 : 6e-7); });
  }
}

TEMPLATE_TEST_CASE("gelu of extreme numbers has its limits", "[gelu]", float, double) {
  const TestType infinity = std::numeric_limits<TestType>::infinity();
  const TestType in[] = {TestType(-1e4), TestType(-1e30), -infinity,   TestType(1e4),
                         TestType(1e30), infinity,        TestType(0), std::numeric_limits<TestType>::quiet_NaN()};
  constexpr Index count = 8;
  const auto check = [&](auto& device, const std::string& isa) {
    using Device = std::remove_reference_t<decltype(device)>;
    for (GeluForm form : forms) {
      // Wide enough for whole SIMD vectors: every number occurs once in each lane.
      Array<TestType> wide(count * 16), out(wide.size()), d_in(wide.size(), TestType(2));
      for (std::size_t i = 0; i < wide.size(); ++i) wide[i] = in[i % count];
      const Index all = static_cast<Index>(wide.size());
      gelu_forward<Device, TestType>(device, out.data(), wide.data(), all, form);
      gelu_backward<Device, TestType>(device, d_in.data(), d_in.data(), wide.data(), all, form);
      wait_for(device);
      INFO(isa << ", form " << static_cast<int>(form));
      for (std::size_t i = 0; i < wide.size(); i += count) {
        for (std::size_t low = 0; low < 3; ++low) {
          CHECK(out[i + low] == 0);
          CHECK(d_in[i + low] == 0);
        }
        for (std::size_t high = 3; high < 6; ++high) {
          CHECK(out[i + high] == in[high]);
          CHECK(d_in[i + high] == 2);
        }
        CHECK(out[i + 6] == 0);
        CHECK(d_in[i + 6] == 1);
        CHECK(std::isnan(out[i + 7]));
        CHECK(std::isnan(d_in[i + 7]));
      }
    }
  };
  if constexpr (std::is_same_v<TestType, float>) {
    for_each_device(1, check);
  } else {
    CpuDevice<Isa::baseline> device(1);
    check(device, "baseline");
  }
}

TEST_CASE("gelu forms differ by at most 4.73e-4", "[gelu]") {
  CpuDevice<Isa::baseline> device(1);
  Array<double> in, by_erf(8001), by_tanh(8001);
  for (int i = 0; i <= 8000; ++i) in.push_back(-4 + 0.001 * i);
  gelu_forward<CpuDevice<Isa::baseline>, double>(device, by_erf.data(), in.data(), 8001, GeluForm::erf);
  gelu_forward<CpuDevice<Isa::baseline>, double>(device, by_tanh.data(), in.data(), 8001, GeluForm::tanh);
  double most = 0;
  for (std::size_t i = 0; i < in.size(); ++i) most = std::max(most, std::abs(by_erf[i] - by_tanh[i]));
  CHECK_FALSE(!(most > 4.725e-4 && most < 4.735e-4));
}

TEST_CASE("gelu of an empty array", "[gelu][gpu]") {
  CpuDevice<Isa::baseline> device(2);
  gelu_forward<CpuDevice<Isa::baseline>, float>(device, nullptr, nullptr, 0, GeluForm::erf);
  gelu_backward<CpuDevice<Isa::baseline>, float>(device, nullptr, nullptr, nullptr, 0, GeluForm::erf);
  CHECK(device.workspace.peak() == 0);
  for_each_gpu([](auto& gpu, const std::string&) {
    using Device = std::remove_reference_t<decltype(gpu)>;
    gelu_forward<Device, float>(gpu, nullptr, nullptr, 0, GeluForm::erf);
    gelu_backward<Device, float>(gpu, nullptr, nullptr, nullptr, 0, GeluForm::tanh);
    CHECK(gpu.workspace.peak() == 0);
  });
}

TEST_CASE("gelu: SIMD widths agree at every odd size", "[gelu]") {
  check_widths([](Index size) { return GeluCase{.count = size, .form = GeluForm::erf}; });
  check_widths([](Index size) { return GeluCase{.count = size, .form = GeluForm::tanh}; });
}

TEST_CASE("gelu: GPU kernels at every size", "[gelu][gpu]") {
  for (const GeluForm form : forms) {
    check_gpu("gelu", GeluCase{.count = 3 * 37 * 40, .form = form},
              GeluCase{.count = 1025 * 3, .form = form, .scale = 4});
    for (const Index count : {1, 3, 4, 5, 7, 8, 9, 2047, 2048, 2049, 4095, 4096, 4097}) {
      check_gpu("gelu", GeluCase{.count = count, .form = form});
    }
    check_alignment(GeluCase{.count = 4096 + 333, .form = form}, 0);
  }
}

// A slice may start at any element. Then no access is wide, and elements outside the slice are not written.
}  // namespace
}  // namespace abh
