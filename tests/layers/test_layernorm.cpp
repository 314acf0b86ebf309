#include "cases/layernorm.hpp"
#include "layers/layernorm.hpp"
#include "tests/harness/layer_case.hpp"

namespace abh {
namespace {

TEST_CASE("layernorm: every derivative, at every SIMD width", "[layernorm]") {
  check_layer(LayernormCase{.BC = 5, .D = 7});
  check_layer(LayernormCase{.BC = 33, .D = 19, .residual = true});
  check_layer(LayernormCase{.BC = 2, .D = 37});
  check_layer(LayernormCase{.BC = 70, .D = 3});
  check_float(LayernormCase{.BC = 261, .D = 5}, 1);  // many tasks
  check_threads(LayernormCase{.BC = 261, .D = 5}, 1);
  check_layer(LayernormCase{.BC = 3, .D = 83});  // every stage of the sums, with a rest of vectors and scalars
}

TEST_CASE("layernorm: the worked example of the chapter", "[layernorm]") {
  const LayernormCase layer{1, 4};
  const Values<double> in = {{-5, 1, 3, 9}, {1, 1, 2, 1}, {0, 1, 0, 0}};
  const double tolerance = 1e-6;  // epsilon reduces rstd by a relative 2e-7
  const auto check = [&](auto& device) {
    CaseArrays<double> a = arrays_of(layer, in);
    layer.forward(device, a);
    require_close(layer.saved(), a.saved, {{2}, {0.2}}, tolerance, "statistics");
    require_close(layer.outputs(), a.out, {{-1.4, 0.8, 0.4, 1.4}}, tolerance, "forward");
    require_close(layer.inputs(), run_backward<double>(layer, device, in, {{1, 0, 1, 1}}),
                  {{0.028, -0.196, 0.196, -0.028}, {-1.4, 0, 0.2, 1.4}, {1, 0, 1, 1}}, tolerance, "backward");
  };
  PlainDevice plain;
  CpuDevice<Isa::baseline> cpu(1);
  check(plain);
  check(cpu);
}

TEST_CASE("layernorm: no rows", "[layernorm][gpu]") { check_no_rows(LayernormCase{.BC = 0, .D = 2}); }

TEST_CASE("layernorm: rows with a large mean keep their precision", "[layernorm][gpu]") {
  const LayernormCase layer{4, 100};
  std::vector<TensorSpec> specs = layer.inputs();
  specs[0].scale = 0.01;
  specs[0].offset = 1;
  const Values<float> in = converted<float>(random_values(specs, 3));
  CpuDevice<Isa::baseline> device(1);
  const Values<double> reference = run_forward<double>(layer, device, converted<double>(in));
  for_each_device(1, [&](auto& any, const std::string& name) {
    const Values<double> got = converted<double>(run_forward<float>(layer, any, in));
    require_close(layer.outputs(), got, reference, 5e-5, name);
  });
}

TEST_CASE("layernorm: a constant row gives the bias and finite gradients", "[layernorm]") {
  const LayernormCase layer{1, 9};
  const Values<double> in = {Array<double>(9, 5.0), Array<double>(9, 2.0), Array<double>(9, -3.0)};
  CpuDevice<Isa::baseline> device(1);
  CHECK(run_forward<double>(layer, device, in)[0] == Array<double>(9, -3.0));
  const Values<double> d_in = run_backward<double>(layer, device, in, random_values(layer.outputs(), 1));
  CHECK(largest(d_in[0]) < 1e4);
}

TEST_CASE("layernorm: SIMD widths agree at every odd size", "[layernorm]") {
  // Not one channel: its gradient is 1 / sqrt(eps) times a difference of equal numbers.
  check_widths([](Index size) { return LayernormCase{.BC = 3, .D = size + 2, .residual = true}; });
}

TEST_CASE("layernorm: GPU kernels at every size", "[layernorm][gpu]") {
  check_gpu("layernorm", LayernormCase{.BC = 3 * 37, .D = 40, .residual = true}, LayernormCase{.BC = 3 * 37, .D = 37},
            LayernormCase{.BC = 3, .D = 40}, LayernormCase{.BC = 1025, .D = 8, .residual = true});
  // Rows that a lane holds in one pack, two and four, full and not, and as single numbers; and a single short one.
  check_gpu("layernorm", LayernormCase{.BC = 19, .D = 256, .residual = true}, LayernormCase{.BC = 10, .D = 384},
            LayernormCase{.BC = 3, .D = 392}, LayernormCase{.BC = 5, .D = 520},
            LayernormCase{.BC = 5, .D = 1024, .residual = true}, LayernormCase{.BC = 9, .D = 255, .residual = true},
            LayernormCase{.BC = 1, .D = 5});
  // Longer rows than the lanes of a warp hold, aligned and not.
  check_gpu("layernorm", LayernormCase{.BC = 9, .D = 1032, .residual = true},
            LayernormCase{.BC = 17, .D = 515, .residual = true}, LayernormCase{.BC = 2, .D = 40000},
            LayernormCase{.BC = 2, .D = 40001});
  check_alignment(LayernormCase{.BC = 3, .D = 16});
}

// The gradients of in, weight and bias where the mean is 0, and 1 / deviation and weight are 1.
template <class Device>
Values<float> run_unscaled(Device& device, const Array<float>& in, const Array<float>& d_out, const float* d_residual,
                           Index BC, Index D) {
  const auto rows = static_cast<std::size_t>(BC), channels = static_cast<std::size_t>(D);
  const Array<float> mean_bc(rows, 0.0f), rstd_bc(rows, 1.0f), weight_d(channels, 1.0f);
  Values<float> d_in = {Array<float>(in.size()), Array<float>(channels, 0.25f), Array<float>(channels, 0.25f)};
  layernorm_backward<Device, float>(device, {.d_in_bcd = d_in[0].data(),
                                             .d_weight_d = d_in[1].data(),
                                             .d_bias_d = d_in[2].data(),
                                             .d_out_bcd = d_out.data(),
                                             .d_residual_bcd = d_residual,
                                             .in_bcd = in.data(),
                                             .mean_bc = mean_bc.data(),
                                             .rstd_bc = rstd_bc.data(),
                                             .weight_d = weight_d.data(),
                                             .BC = BC,
                                             .D = D});
  wait_for(device);
  return d_in;
}

TEST_CASE("layernorm: on the GPU with a misaligned residual", "[layernorm][gpu]") {
  const LayernormCase layer{3, 16};
  const Array<float> in = converted<float>(random_values(layer.outputs(), 1))[0];
  PlainDevice plain;
  const Values<double> expected = converted<double>(run_unscaled(plain, in, in, in.data(), layer.BC, layer.D));
  for_each_gpu([&](auto& device, const std::string& name) {
    for (const std::size_t offset : {0u, 1u, 2u}) {
      INFO(name << ", offset " << offset);
      Array<float> residual(offset, 0.0f);
      residual.insert(residual.end(), in.begin(), in.end());
      const Values<float> d_in = run_unscaled(device, in, in, residual.data() + offset, layer.BC, layer.D);
      // Sums over a row come in another order.
      require_close(layer.inputs(), converted<double>(d_in), expected, 1e-5, name);
    }
  });
}

// With a mean of 0, small whole numbers and a power of two of channels no sum is rounded: not a single row may be lost
// or added twice.
TEST_CASE("layernorm: on the GPU with several rows per warp", "[layernorm][gpu]") {
  const auto check = [](Index BC, Index D) {
    Array<float> in, d_out;
    for (Index i = 0; i < BC * D; ++i) {
      in.push_back(static_cast<float>(i % 5 - 2));
      d_out.push_back(static_cast<float>(i % 7 - 2));
    }
    PlainDevice plain;
    const Values<float> expected = run_unscaled(plain, in, d_out, nullptr, BC, D);
    for_each_gpu([&](auto& device, const std::string& name) {
      INFO(name << ", " << BC << " x " << D);
      CHECK((run_unscaled(device, in, d_out, nullptr, BC, D) == expected));
    });
  };
  check(2048 * 8 + 1, 1);
  check(2048 * 3 + 5, 8);
  check(2048 + 3, 1024);
}

}  // namespace
}  // namespace abh
