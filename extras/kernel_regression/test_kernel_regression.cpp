#include <cmath>
#include <limits>
#include <numbers>

#include "extras/kernel_regression/kernel_regression.hpp"
#include "extras/kernel_regression/kernel_regression_case.hpp"
#include "tests/harness/layer_case.hpp"

namespace abh {
namespace {

TEST_CASE("kernel_regression: every derivative, at every SIMD width", "[kernel_regression]") {
  check_layer(KernelRegressionCase{.C = 5, .S = 7});
  check_layer(KernelRegressionCase{.C = 19, .S = 19, .leave_one_out = true});
  check_layer(KernelRegressionCase{.C = 3, .S = 5, .leave_one_out = true});
  check_layer(KernelRegressionCase{.C = 9, .S = 4, .leave_one_out = true, .learned = false});
  check_layer(KernelRegressionCase{.C = 4, .S = 6, .learned = false, .fixed_width = -2.5});
  // More queries and keys than one task takes, with a rest of vectors and scalars.
  check_layer(KernelRegressionCase{.C = 37, .S = 83});
  // Several runs of a sum.
  check_float(KernelRegressionCase{.C = 7, .S = 2101, .leave_one_out = true}, 1);
  check_float(KernelRegressionCase{.C = 2101, .S = 7, .leave_one_out = true}, 1);
  check_threads(KernelRegressionCase{.C = 261, .S = 261, .leave_one_out = true}, 1);
}

TEST_CASE("kernel_regression: SIMD widths agree at every odd size", "[kernel_regression]") {
  // With one key and leave_one_out the query has no key.
  check_widths([](Index size) { return KernelRegressionCase{.C = size, .S = size + 2, .leave_one_out = true}; });
  check_widths([](Index size) { return KernelRegressionCase{.C = 3, .S = size, .learned = size % 4 == 1}; });
}

TEST_CASE("kernel_regression: the worked example of the chapter", "[kernel_regression][gpu]") {
  // Then a weight halves with every 1 of the gap.
  const double width = std::sqrt(2 * std::numbers::ln2), square = 2 * std::numbers::ln2;
  const Values<double> in = {{1, 0.5}, {0, 1, 2}, {8, 0, 4}, {width}};
  const KernelRegressionCase layer{.C = 2, .S = 3};
  const KernelRegressionCase without{.C = 2, .S = 3, .leave_one_out = true};
  const Values<double> d_in = {
      {-4 * square, -16 * square}, {13 * square, 8 * square, -square}, {5, 6, 2}, {-6 * width}};
  const auto check = [&]<class T>(auto& device, T, double tolerance) {
    const Values<T> rounded = converted<T>(in);
    CaseArrays<T> a = arrays_of(layer, rounded);
    layer.forward(device, a);
    wait_for(device);
    require_close(layer.saved(), converted<double>(a.saved), {{1, 0}, {1.0 / 2, 4.0 / 9}}, tolerance, "saved");
    require_close(layer.outputs(), converted<double>(a.out), {{3, 4}}, tolerance, "forward");
    require_close(layer.inputs(), run_backward<T>(layer, device, rounded, {{4, 9}}), d_in, tolerance, "backward");
    require_close(layer.outputs(), converted<double>(run_forward<T>(without, device, rounded)), {{4.0 / 3, 7.2}},
                  tolerance, "leave one out");
  };
  PlainDevice plain;
  CpuDevice<Isa::baseline> cpu(1);
  check(plain, double{}, 1e-14);
  check(cpu, double{}, 1e-14);
  for_each_device(1, [&](auto& device) { check(device, float{}, 1e-6); });
}

TEST_CASE("kernel_regression: the weights of the plain loops can be inspected", "[kernel_regression]") {
  const Array<double> query_c = {1, 0.5}, key_s = {0, 1, 2}, value_s = {8, 0, 4},
                      width = {std::sqrt(2 * std::numbers::ln2)};
  Array<double> out_c(2), near_c(2), share_c(2), weight_cs(6);
  const KernelRegressionInputs<double> inputs{.query_c = query_c.data(),
                                              .key_s = key_s.data(),
                                              .value_s = value_s.data(),
                                              .width = width.data(),
                                              .leave_one_out = true,
                                              .C = 2,
                                              .S = 3};
  PlainDevice plain;
  kernel_regression_forward<PlainDevice, double>(
      plain, {.out_c = out_c.data(), .near_c = near_c.data(), .share_c = share_c.data(), .in = inputs});
  kernel_regression_weights<PlainDevice, double>(plain, weight_cs.data(), near_c.data(), share_c.data(), inputs);
  require_close({activation("weight_cs", {2, 3})}, {weight_cs}, {{0, 2.0 / 3, 1.0 / 3, 0.8, 0, 0.2}}, 1e-14, "weights");
}

TEST_CASE("kernel_regression: a query without keys", "[kernel_regression][gpu]") {
  const KernelRegressionCase alone{.C = 2, .S = 1, .leave_one_out = true}, no_keys{.C = 2, .S = 0};
  const Values<float> in = {{1, 2}, {3}, {4}, {2}};
  for_each_device(2, [&](auto& device, const std::string& name) {
    INFO(name);
    // The second query has the key.
    CHECK(run_forward<float>(alone, device, in)[0] == Array<float>{0, 4});
    const Values<double> d_in = run_backward<float>(alone, device, in, {{5, 7}});
    CHECK(d_in == Values<double>{{0, 0}, {0}, {7}, {0}});
    CHECK(run_forward<float>(no_keys, device, {{1, 2}, {}, {}, {2}})[0] == Array<float>{0, 0});
    CHECK(run_backward<float>(no_keys, device, {{1, 2}, {}, {}, {2}}, {{5, 7}}) == Values<double>{{0, 0}, {}, {}, {0}});
    const KernelRegressionCase no_queries{.C = 0, .S = 2};
    CHECK(run_forward<float>(no_queries, device, {{}, {1, 2}, {3, 4}, {2}})[0].empty());
    CHECK(run_backward<float>(no_queries, device, {{}, {1, 2}, {3, 4}, {2}}, {{}}) ==
          Values<double>{{}, {0, 0}, {0, 0}, {0}});
  });
}

TEST_CASE("kernel_regression: far from all keys the nearest key determines the output", "[kernel_regression][gpu]") {
  // Scores of -1,300, of -1e8 and of -2e9: without the maximum every sum would be 0. In float the last two keys have
  // the same distance from the last query, but the nearer key must win.
  const KernelRegressionCase layer{.C = 3, .S = 3};
  const Values<float> in = {{-51, 20000, -60000}, {0, 0.001f, 1}, {5, 6, 7}, {1}};
  for_each_device(1, [&](auto& device, const std::string& name) {
    INFO(name);
    const Array<float> out = run_forward<float>(layer, device, in)[0];
    const double power = std::exp(-51 * 0.001);
    CHECK(std::abs(out[0] - (5 + 6 * power) / (1 + power)) < 1e-5);
    CHECK(out[1] == 7);
    CHECK(out[2] == 5);
    const Values<double> d_in = run_backward<float>(layer, device, in, {{1, 1, 1}});
    for (const Array<double>& each : d_in) CHECK(std::isfinite(largest(each)));
  });
}

TEST_CASE("kernel_regression: precision is kept when all keys are far away", "[kernel_regression][gpu]") {
  // Keys in a cluster, queries 50 away: scores around -1,300 that differ by a little.
  const KernelRegressionCase layer{.C = 9, .S = 21};
  std::vector<TensorSpec> specs = layer.inputs();
  specs[0].offset = 50;
  specs[1].scale = 0.1;
  specs[3].scale = 0;
  specs[3].offset = 1;
  const Values<float> in = converted<float>(random_values(specs, 3));
  const Values<float> d_out = converted<float>(random_values(layer.outputs(), 4));
  PlainDevice plain;
  const Values<double> out = run_forward<double>(layer, plain, converted<double>(in));
  const Values<double> d_in = run_backward<double>(layer, plain, converted<double>(in), converted<double>(d_out));
  for_each_device(1, [&](auto& device, const std::string& name) {
    require_close(layer.outputs(), converted<double>(run_forward<float>(layer, device, in)), out, 1e-5, name);
    require_close(layer.inputs(), run_backward<float>(layer, device, in, d_out), d_in, 2e-5, name);
  });
}

TEST_CASE("kernel_regression: only the square of the width matters", "[kernel_regression]") {
  const KernelRegressionCase layer{.C = 4, .S = 6}, average{.C = 4, .S = 6, .learned = false, .fixed_width = 0};
  Values<double> in = random_values(layer.inputs(), 1);
  const Values<double> d_out = random_values(layer.outputs(), 2);
  CpuDevice<Isa::baseline> device(1);
  const Values<double> out = run_forward<double>(layer, device, in),
                       d_in = run_backward<double>(layer, device, in, d_out);
  in[3][0] = -in[3][0];
  CHECK(run_forward<double>(layer, device, in) == out);
  const Values<double> d_negative = run_backward<double>(layer, device, in, d_out);
  CHECK(d_negative[0] == d_in[0]);
  CHECK(std::abs(d_negative[3][0] + d_in[3][0]) < 1e-15);
  // At width 0 the output is the average, and the gradient is 0.
  in[3][0] = 0;
  const Values<double> d_average = run_backward<double>(layer, device, in, d_out);
  CHECK(largest(d_average[0]) == 0);
  CHECK(largest(d_average[1]) == 0);
  CHECK(largest(d_average[3]) == 0);
  in.pop_back();
  double mean = 0;
  for (double value : in[2]) mean += value / 6;
  const Values<double> averages = run_forward<double>(average, device, in);
  for (double each : averages[0]) CHECK(std::abs(each - mean) < 1e-15);
}

TEST_CASE("kernel_regression: NaN propagates", "[kernel_regression][gpu]") {
  const KernelRegressionCase layer{.C = 21, .S = 21, .leave_one_out = true};
  const Values<float> good = converted<float>(random_values(layer.inputs(), 1));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for_each_device(1, [&](auto& device, const std::string& name) {
    for (const std::size_t at : {0u, 13u, 20u}) {
      for (const std::size_t spec : {0u, 1u, 2u, 3u}) {
        INFO(name << ", input " << spec << " at " << at);
        Values<float> in = good;
        in[spec][spec == 3 ? 0 : at] = nan;
        const Array<float> out = run_forward<float>(layer, device, in)[0];
        for (std::size_t c = 0; c < out.size(); ++c) {
          // A query influences its own row; a key and a value influence all rows, except the row that leaves them out.
          CHECK(std::isnan(out[c]) == (spec == 3 || (spec == 0) == (c == at)));
        }
      }
    }
  });
}

// One heavy key and many equal light keys: the output is the share of the light keys. With as many equal queries, a
// key's gradients are that number times the gradient from one query.
template <class Device>
void check_long_sums(Device& device, const std::string& name, std::size_t light) {
  INFO(name);
  const double power = std::exp(-0.5 * 3.25 * 3.25), sum = 1 + static_cast<double>(light) * power;
  const KernelRegressionCase many_keys{.C = 1, .S = static_cast<Index>(light + 1), .learned = false};
  Values<float> in = {{0}, Array<float>(light + 1, 3.25f), Array<float>(light + 1, 1.0f)};
  in[1][0] = in[2][0] = 0;
  const double out = run_forward<float>(many_keys, device, in)[0][0];
  CHECK(std::abs(out * sum / (sum - 1) - 1) < 5e-6);

  const KernelRegressionCase many_queries{.C = static_cast<Index>(light), .S = 2, .learned = false};
  in = {Array<float>(light, 0.0f), {0, 3.25f}, {0, 1}};
  const Values<double> d_in = run_backward<float>(many_queries, device, in, {Array<float>(light, 1.0f)});
  const double weight = power / (1 + power), d_score = weight * (1 - weight);
  CHECK(std::abs(d_in[1][1] / (static_cast<double>(light) * d_score * -3.25) - 1) < 5e-6);
  CHECK(std::abs(d_in[2][1] / (static_cast<double>(light) * weight) - 1) < 5e-6);
}

TEST_CASE("kernel_regression: long sums do not drift", "[kernel_regression][gpu]") {
  for_each_cpu(1, [](auto& device, const std::string& name) { check_long_sums(device, name, 1 << 20); });
  for_each_gpu([](auto& device, const std::string& name) { check_long_sums(device, name, 1 << 16); });
}

TEST_CASE("kernel_regression: scratch memory grows only with the queries", "[kernel_regression]") {
  const auto scratch = [](Index C, Index S) {
    const KernelRegressionCase layer{.C = C, .S = S};
    CpuDevice<Isa::baseline> device(1);
    run_backward<float>(layer, device, converted<float>(random_values(layer.inputs(), 1)),
                        converted<float>(random_values(layer.outputs(), 2)));
    return device.workspace.peak();
  };
  CHECK(scratch(64, 512) == scratch(64, 64));
  CHECK(scratch(512, 64) <= 8 * scratch(64, 64));
}

TEST_CASE("kernel_regression: GPU kernels at every size", "[kernel_regression][gpu]") {
  check_gpu("kernel_regression", KernelRegressionCase{.C = 5, .S = 7}, KernelRegressionCase{.C = 37, .S = 83},
            KernelRegressionCase{.C = 40, .S = 64, .leave_one_out = true},
            KernelRegressionCase{.C = 67, .S = 67, .leave_one_out = true}, KernelRegressionCase{.C = 1, .S = 1},
            KernelRegressionCase{.C = 9, .S = 33, .learned = false, .fixed_width = 2});
  check_alignment(KernelRegressionCase{.C = 3, .S = 16});
}

}  // namespace
}  // namespace abh
