// Pooling that is not causal: one average for all positions.

#include <cmath>

#include "tests/harness/pooling_checks.hpp"
#include "tests/harness/pooling_example.hpp"

namespace abh {
namespace {

TEST_CASE("pooling: bidirectional, every derivative", "[pooling]") {
  for (Index payloads : {1, 3}) {
    INFO("payloads " << payloads);
    check_every_derivative({{2, 11, 2, 5, 0, false, payloads}});
    check_every_derivative({{2, 11, 2, 3, 0, false, payloads}, holes_and_nothing(11)});
    check_every_derivative({{2, 7, 2, 3, 0, false, payloads}, holes_and_nothing(7), true, 4, 9});
    check_every_derivative({{1, 4, 1, 150, 0, false, payloads}});
    check_every_derivative({{9, 5, 2, 3, 0, false, payloads}});
    check_every_derivative({{1, 1, 1, 1, 0, false, payloads}});
  }
}

TEST_CASE("pooling: bidirectional, on the GPU", "[pooling][gpu]") {
  for (Index C : {1, 2, 17, 255, 256, 257, 513, 1100}) {
    check_on_gpu(LseCase{{{1, C, 2, 3, 0, false}}});
    check_on_gpu(PoolingCase{.shape = {.B = 2, .C = C, .N = 1, .K = 8, .window = 0, .causal = false, .payloads = 2}});
  }
  for (Index K : {1, 3, 33, 64, 100, 300}) {
    check_on_gpu(LseCase{{{2, 19, 3, K, 0, false, 2}}});
    check_on_gpu(LseCase{{{2, 37, 2, K, 0, false}, holes_and_nothing(37), true, 3, 5}});
  }
  check_on_gpu(PoolingCase{.shape = {.B = 1, .C = 3, .N = 1, .K = 1021, .window = 0, .causal = false, .payloads = 2}},
               4e-2);
  check_on_gpu(LseCase{{{2, 530, 1, 4, 0, false, 2}, holes_and_nothing(530), true, 8, 12}});
  check_alignment(LseCase{{{1, 9, 2, 8, 0, false, 2}}});
  for (double scale : {30.0, 1e4})
    check_accuracy(PoolingCase{.shape = {.B = 2, .C = 600, .N = 2, .K = 4, .window = 0, .causal = false}}, scale, 1e-5);
}

TEST_CASE("pooling: bidirectional on the GPU gives every row the same bits", "[pooling][gpu]") {
  const PoolingCase layer{{2, 300, 2, 3, 0, false, 2}, holes_and_nothing(300)};
  const Values<float> in = converted<float>(random_values(layer.inputs(), 1));
  for_each_gpu([&](auto& device, const std::string& name) {
    const Array<float> out = run_forward<float>(layer, device, in)[0];
    Index different = 0, not_zero = 0;
    for (Index i = 0; i < 300 * 12; ++i) {
      different += out[size(i)] != out[size(i % 12)];
      not_zero += out[size(300 * 12 + i)] != 0;
    }
    INFO(name);
    CHECK(different == 0);
    CHECK(not_zero == 0);  // fully masked
  });
}

// A masked logit that is larger than all others would move the maximum, and the weights would be 0.
TEST_CASE("pooling: bidirectional, the number of a masked logit has no influence", "[pooling][gpu]") {
  const Index C = 70, N = 2;
  const PoolingCase layer{{2, C, N, 3, 0, false}, holes_and_nothing(C)};
  const Values<double> in = random_values(layer.inputs(), 1), d_out = random_values(layer.outputs(), 2);
  Values<double> changed = in;
  for (Index i = 0; i < 2 * N * C; ++i) {
    if (layer.mask_bc[size(i / (N * C) * C + i % C)] == 0) changed[0][size(i)] = 900;
  }
  const auto check = [&]<class T>(auto& device, const Values<T>& one, const Values<T>& other, const Values<T>& d) {
    CHECK((run_forward<T>(layer, device, one) == run_forward<T>(layer, device, other)));
    CHECK((run_backward<T>(layer, device, one, d) == run_backward<T>(layer, device, other, d)));
  };
  for_each_device(2, [&](auto& device) {
    check(device, converted<float>(in), converted<float>(changed), converted<float>(d_out));
  });
  PlainDevice plain;
  check(plain, in, changed, d_out);
}

TEST_CASE("pooling: bidirectional, the worked example", "[pooling]") {
  const auto check = [](auto& device) {
    const CaseArrays<double> a =
        example_arrays(device, {{1, 3, 1, 2, 0, false}}, {std::log(2), std::log(3), std::log(1)});
    require_numbers("sum", a.saved[1], {2, 2, 2});
    require_numbers("out", a.out[0], {5.0 / 3, 7.0 / 3, 5.0 / 3, 7.0 / 3, 5.0 / 3, 7.0 / 3});
    require_numbers("d_x", a.d_in[1], {5.0 / 3, 4.0 / 3, 2.5, 2, 5.0 / 6, 2.0 / 3});
    require_numbers("d_logit", a.d_in[0], {7.0 / 9, -5.0 / 6, 1.0 / 18});
  };
  PlainDevice plain;
  CpuDevice<Isa::baseline> cpu(1);
  check(plain);
  check(cpu);
  require_numbers("weights", example_weights({1, 3, 1, 2, 0, false}),
                  {0.125, 0.375, 0.5, 0.125, 0.375, 0.5, 0.125, 0.375, 0.5});
}

TEST_CASE("pooling: bidirectional, SIMD widths agree at every odd size", "[pooling]") {
  check_widths([](Index size) {
    return PoolingCase{.shape = {.B = 2, .C = size, .N = 2, .K = size, .window = 0, .causal = false, .payloads = 2}};
  });
}

TEST_CASE("pooling: bidirectional, few long sequences", "[pooling][heavy]") {
  check_decay_of_chunks({2, 600, 1, 9, 0, false, 2});
  check_threads(PoolingCase{.shape = {.B = 2, .C = 700, .N = 2, .K = 11, .window = 0, .causal = false, .payloads = 2},
                            .mask_bc = nullptr,
                            .accumulate = true,
                            .gap = 5,
                            .d_gap = 9},
                1);
}

TEST_CASE("pooling: bidirectional, many heads and channels", "[pooling][gpu]") {
  check_float(LseCase{{{1, 3, 300, 1, 0, false, 2}}}, 1);
  check_float(PoolingCase{.shape = {.B = 1, .C = 258, .N = 1, .K = 130, .window = 0, .causal = false}}, 1);
}

TEST_CASE("pooling: bidirectional, no sequences, no positions", "[pooling][gpu]") {
  for (Index payloads : {1, 2}) {
    check_no_rows(PoolingCase{{0, 5, 2, 3, 0, false, payloads}});
    check_no_rows(PoolingCase{{2, 0, 2, 3, 0, false, payloads}});
  }
}

}  // namespace
}  // namespace abh
