#pragma once

#include <string>
#include <vector>

#include "apps/golden/golden.hpp"
#include "extras/kernel_regression/kernel_regression_case.hpp"

namespace abh {

template <class Device, class T>
void golden_kernel_regression(GoldenCases<Device, T>& g) {
  const std::string& kernel = g.file().setting("kernel");
  if (kernel != "average" && kernel != "gaussian" && kernel != "parametric") {
    g.file().fail("metadata kernel: expected average, gaussian or parametric, found \"" + kernel + "\"");
  }
  const KernelRegressionCase layer{.C = g.file().shape("input.query_c", 1)[0],
                                   .S = g.file().shape("input.key_s", 1)[0],
                                   .leave_one_out = g.file().integer_setting("leave_one_out", 0, 0, 1) == 1,
                                   .learned = kernel == "parametric",
                                   .fixed_width = kernel == "average" ? 0.0 : 1.0};
  std::vector<GoldenTensor> inputs = {
      {"input.query_c", {layer.C}}, {"input.key_s", {layer.S}}, {"input.value_s", {layer.S}}};
  if (layer.learned) inputs.push_back({"weight.width", {}});
  g.run_layer(layer, inputs, {{"output.y_c", {layer.C}}});
}

// Cases of golden and bench.
struct KernelRegressionCases {
  template <class Golden>
  static void add_golden(std::vector<typename Golden::Case>& cases) {
    cases.push_back({"kernel_regression", [](Golden& g) { golden_kernel_regression(g); }, {"kernel", "leave_one_out"}});
  }
  template <class Bench>
  static void measure(Bench& bench) {
    const Index C = bench.C();
    bench.layer("kernel_regression", KernelRegressionCase{.C = C, .S = C}, C * C, 30, 60);
  }
};

}  // namespace abh
