#include "cases/layernorm.hpp"
#include "layers/layernorm.hpp"
#include "tests/layer_case.hpp"

namespace abh {
namespace {

TEST_CASE("layernorm: every derivative, every width", "[layernorm]") {
  check_layer(LayernormCase{5, 7});
  check_layer(LayernormCase{33, 19, true});
  check_layer(LayernormCase{2, 37});
  check_layer(LayernormCase{70, 3});
  check_float(LayernormCase{261, 5}, 1);  // many tasks
  check_threads(LayernormCase{261, 5}, 1);
  check_layer(LayernormCase{3, 83});  // all turns of the sums, and a rest of vectors and scalars
}

TEST_CASE("layernorm: no rows", "[layernorm][gpu]") {
  const Values<double> in = {{}, {1, 2}, {3, 4}};
  CpuDevice<Isa::baseline> device(2);
  CHECK(run_backward<double>(LayernormCase{0, 2}, device, in, {{}})[1] == Array<double>{0, 0});
  for_each_gpu([&](auto& gpu, const std::string& name) {
    INFO(name);
    const Values<double> d_in = run_backward<float>(LayernormCase{0, 2}, gpu, converted<float>(in), {{}});
    CHECK(d_in[1] == Array<double>{0, 0});
    CHECK(d_in[2] == Array<double>{0, 0});
  });
}

TEST_CASE("layernorm: rows with a large mean keep their digits", "[layernorm][gpu]") {
  const LayernormCase layer{4, 100};
  std::vector<Slot> slots = layer.inputs();
  slots[0].scale = 0.01;
  slots[0].offset = 1;
  const Values<float> in = converted<float>(random_values(slots, 3));
  CpuDevice<Isa::baseline> device(1);
  const Values<double> reference = run_forward<double>(layer, device, converted<double>(in));
  const auto check = [&](auto& any, const std::string& name) {
    const Values<double> got = converted<double>(run_forward<float>(layer, any, in));
    require_close(layer.outputs(), got, reference, 5e-5, name);
  };
  for_each_cpu(1, check);
  for_each_gpu(check);
}

TEST_CASE("layernorm: a row of equal numbers gives the bias, and finite gradients", "[layernorm]") {
  const LayernormCase layer{1, 9};
  const Values<double> in = {Array<double>(9, 5.0), Array<double>(9, 2.0), Array<double>(9, -3.0)};
  CpuDevice<Isa::baseline> device(1);
  CHECK(run_forward<double>(layer, device, in)[0] == Array<double>(9, -3.0));
  const Values<double> d_in = run_backward<double>(layer, device, in, random_values(layer.outputs(), 1));
  CHECK(largest(d_in[0]) < 1e4);
}

TEST_CASE("layernorm: lane widths agree at every odd size", "[layernorm]") {
  // Not one channel: its gradient is 1 / sqrt(eps) times a difference of equal numbers.
  check_widths([](Index size) { return LayernormCase{3, size + 2, true}; });
}

TEST_CASE("layernorm: on the GPU", "[layernorm][gpu]") {
  check_gpu("layernorm", "3 x 37 x 40, residual", LayernormCase{3 * 37, 40, true});
  check_gpu("layernorm", "3 x 37 x 37", LayernormCase{3 * 37, 37});
  check_gpu("layernorm", "3 x 1 x 40", LayernormCase{3, 40});
  check_gpu("layernorm", "1 x 1025 x 8, residual", LayernormCase{1025, 8, true});
  // Rows of more than one access a lane, in wide accesses and one by one; and a single short one.
  check_gpu("layernorm", "5 x 520", LayernormCase{5, 520});
  check_gpu("layernorm", "5 x 515, residual", LayernormCase{5, 515, true});
  check_gpu("layernorm", "1 x 5", LayernormCase{1, 5});
  check_alignment(LayernormCase{3, 16});
}

TEST_CASE("layernorm: on the GPU, a residual that is not aligned as the rest", "[layernorm][gpu]") {
  const Index BC = 3, D = 16;
  for_each_gpu([&](auto& device, const std::string& name) {
    const Array<float> in = converted<float>(random_values({activation("in_bcd", {BC * D})}, 1))[0];
    const Array<float> mean_bc(BC, 0.0f), rstd_bc(BC, 1.0f), weight_d(D, 1.0f);
    Array<float> expected;
    for (const std::size_t offset : {0u, 1u, 2u}) {
      INFO(name << ", offset " << offset);
      Array<float> residual(offset, 0.0f), d_in(in.size()), d_weight_d(D, 0.0f), d_bias_d(D, 0.0f);
      residual.insert(residual.end(), in.begin(), in.end());
      layernorm_backward<std::remove_reference_t<decltype(device)>, float>(device,
                                                                           {.d_in_bcd = d_in.data(),
                                                                            .d_weight_d = d_weight_d.data(),
                                                                            .d_bias_d = d_bias_d.data(),
                                                                            .d_out_bcd = in.data(),
                                                                            .d_residual_bcd = residual.data() + offset,
                                                                            .in_bcd = in.data(),
                                                                            .mean_bc = mean_bc.data(),
                                                                            .rstd_bc = rstd_bc.data(),
                                                                            .weight_d = weight_d.data(),
                                                                            .BC = BC,
                                                                            .D = D});
      wait_for(device);
      if (offset == 0) expected = d_in;
      // Sums over a row come in another order.
      require_close({activation("d_in_bcd", {BC * D})}, converted<double>(Values<float>{d_in}),
                    converted<double>(Values<float>{expected}), 1e-5, name);
    }
  });
}

// With one channel, a mean of 0 and small whole numbers every gradient is one too: not a single row may be lost or
// added twice.
TEST_CASE("layernorm: on the GPU, so many rows that a warp takes more of them", "[layernorm][gpu]") {
  const Index BC = 2048 * 8 + 1;
  for_each_gpu([&](auto& device, const std::string& name) {
    INFO(name);
    Array<float> in, d_out, d_in_expected;
    float d_weight = 0.25f, d_bias = 0.25f;
    for (Index bc = 0; bc < BC; ++bc) {
      const float x = static_cast<float>(bc % 5 - 2), d = static_cast<float>(bc % 7 - 2);
      in.push_back(x);
      d_out.push_back(d);
      d_in_expected.push_back(-x * x * d);
      d_weight += d * x;
      d_bias += d;
    }
    const Array<float> mean_bc(in.size(), 0.0f), rstd_bc(in.size(), 1.0f), weight_d(1, 1.0f);
    Array<float> d_in(in.size()), d_weight_d(1, 0.25f), d_bias_d(1, 0.25f);
    layernorm_backward<std::remove_reference_t<decltype(device)>, float>(device, {.d_in_bcd = d_in.data(),
                                                                                  .d_weight_d = d_weight_d.data(),
                                                                                  .d_bias_d = d_bias_d.data(),
                                                                                  .d_out_bcd = d_out.data(),
                                                                                  .d_residual_bcd = nullptr,
                                                                                  .in_bcd = in.data(),
                                                                                  .mean_bc = mean_bc.data(),
                                                                                  .rstd_bc = rstd_bc.data(),
                                                                                  .weight_d = weight_d.data(),
                                                                                  .BC = BC,
                                                                                  .D = 1});
    wait_for(device);
    CHECK((d_in == d_in_expected));
    CHECK(d_weight_d[0] == d_weight);
    CHECK(d_bias_d[0] == d_bias);
  });
}

}  // namespace
}  // namespace abh
