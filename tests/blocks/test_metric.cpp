#include "tests/harness/attention_blocks.hpp"

namespace abh {
namespace {

TEST_CASE("metric: every derivative, at every SIMD width, in every form", "[metric]") {
  for_each_form(metric_case(MetricForm::packed, 5, 1, 5, 2, 3), [](const auto& block) { check_layer(block); });
  for_each_form(metric_case(MetricForm::packed, 6, 3, 0, 1, 5), [](const auto& block) { check_layer(block); });
  // H != D, from both sides.
  for_each_form(metric_case(MetricForm::packed, 3, 2, 5, 1, 4), [](const auto& block) { check_layer(block); });
  for_each_form(metric_case(MetricForm::packed, 7, 1, 2, 2, 3), [](const auto& block) { check_layer(block); });
  for_each_form(metric_case(MetricForm::packed, 1, 1, 1, 1, 1), [](const auto& block) { check_layer(block); });
}

TEST_CASE("metric: with a mask", "[metric]") {
  BlockCase<MakeMetric> block = metric_case(MetricForm::packed, 4, 2, 2, 2, 5);
  block.mask_bc = {1, 1, 0, 0, 1, /**/ 0, 0, 1, 1, 0};  // a hole; padding on both sides
  for_each_form(block, [](const auto& each) { check_layer(each); });

  // The first two rows of the second sequence have no key: their output is the residual.
  const Values<double> in = random_values(block.inputs(), 4);
  CpuDevice<Isa::baseline> device(1);
  const Array<double> out = run_forward<double>(block, device, in)[0];
  for (std::size_t i = 20; i < 28; ++i) CHECK(out[i] == in[0][i]);
}

TEST_CASE("metric: biases by distance", "[metric][gpu]") {
  BlockCase<MakeMetric> block = metric_case(MetricForm::packed, 6, 3, 2, 1, 7);
  block.config.positions = "alibi";
  for_each_form(block, [](const auto& each) {
    check_layer(each);
    if (!each.options.causal) return;
    check_causality(each);
    check_steps(each);
  });
}

TEST_CASE("metric: with dropout, without norm, without residual", "[metric]") {
  for (const MetricForm form : {MetricForm::packed, MetricForm::full}) {
    check_dropout(metric_case(form, 6, 2, 3, 2, 3), 0.25, sites::LayerUse::mixer);
  }
  check_without_norm_and_residual(metric_case(MetricForm::packed, 4, 1, 4, 1, 4));
}

TEST_CASE("metric: packed and full agree on a symmetric metric", "[metric]") {
  const BlockCase<MakeMetric> packed = metric_case(MetricForm::packed, 5, 2, 3, 2, 4);
  const BlockCase<MakeMetric> full = metric_case(MetricForm::full, 5, 2, 3, 2, 4);
  const std::vector<TensorSpec> specs = packed.inputs();
  std::size_t metric = 0;
  while (specs[metric].name != "metric_nl") ++metric;
  REQUIRE(full.inputs()[metric].name == "metric_nkk");
  const Values<double> in = random_values(specs, 21);
  const Values<double> d_out = random_values(packed.outputs(), 22);
  Values<double> in_full = in;
  in_full[metric].assign(2 * 9, 0);
  const auto each_pair = [](const auto& body) {
    for (std::size_t n = 0; n < 2; ++n) {
      std::size_t l = 6 * n;
      for (std::size_t k = 0; k < 3; ++k) {
        for (std::size_t kk = k; kk < 3; ++kk, ++l) body(l, 9 * n + 3 * k + kk, 9 * n + 3 * kk + k);
      }
    }
  };
  each_pair([&](std::size_t l, std::size_t upper, std::size_t lower) {
    in_full[metric][upper] = in[metric][l];
    in_full[metric][lower] = in[metric][l];
  });
  CpuDevice<Isa::baseline> device(1);
  require_close(packed.outputs(), run_forward<double>(packed, device, in), run_forward<double>(full, device, in_full),
                1e-14, "outputs");
  Values<double> d_full = run_backward<double>(full, device, in_full, d_out);
  Array<double> folded(12);
  each_pair([&](std::size_t l, std::size_t upper, std::size_t lower) {
    folded[l] = d_full[metric][upper] + (upper == lower ? 0 : d_full[metric][lower]);
  });
  d_full[metric] = folded;
  require_close(specs, run_backward<double>(packed, device, in, d_out), d_full, 1e-13, "gradients");
}

TEST_CASE("metric: causal, and inference equals the full pass", "[metric][gpu]") {
  for (const MetricForm form : {MetricForm::packed, MetricForm::full}) {
    check_causality(metric_case(form, 10, 2, 5, 2, 9));
    check_steps(metric_case(form, 6, 2, 3, 1, 12));
    check_steps(metric_case(form, 5, 1, 7, 1, 12));
  }
}

}  // namespace
}  // namespace abh
