// The gradient across the border of two chunks, of the logarithm of the sums of weights. test_chunks.cpp tests networks
// in chunks, test_pooling_long.cpp thousands of borders.

#include <cmath>
#include <limits>
#include <string>

#include "tests/harness/pooling_case.hpp"

namespace abh {
namespace {

TEST_CASE("pooling: the gradient of the logarithm of the sums", "[pooling]") {
  for (Index window : {0, 1, 2, 4, 5, 10, 11, 50}) {
    INFO("window " << window);
    check_every_derivative({{2, 11, 2, 5, window}});
    check_every_derivative({{2, 11, 2, 3, window}, holes_and_nothing(11)});
  }
}

// The incoming gradient at positions without unmasked positions has no meaning and no effect.
TEST_CASE("pooling: the gradient of the logarithm of an empty sum is not read", "[pooling]") {
  for_each_cpu(1, [&](auto& device, const std::string& name) {
    for (bool causal : {true, false}) {
      for (Index window : {0, 3}) {
        if (!causal && window > 0) continue;
        const LseCase layer{{{2, 12, 1, 4, window, causal}, holes_and_nothing(12)}};
        const Values<float> in = converted<float>(random_values(layer.inputs(), 1));
        Values<float> d_out = converted<float>(random_values(layer.outputs(), 2));
        for (Index c = 0; c < 24; ++c) {
          if (c >= 12 || (causal && c < 3)) d_out[1][size(c)] = std::numeric_limits<float>::quiet_NaN();
        }
        INFO(name << ", window " << window << ", causal " << causal);
        for (const Array<double>& gradient : run_backward<float>(layer, device, in, d_out)) {
          CHECK(std::isfinite(largest(gradient)));
        }
      }
    }
  });
}

TEST_CASE("pooling: on the GPU, the gradient of the logarithm of the sums", "[pooling][gpu]") {
  for (Index window : {0, 1, 5, 255, 256, 257, 300}) {
    check_on_gpu(LseCase{{{1, 519, 2, 3, window}}});
    check_on_gpu(LseCase{{{2, 530, 1, 4, window}, holes_and_nothing(530)}});
    check_on_gpu(sloped(LseCase{{{1, 519, 2, 2, window, true, 2}}}, 0.003));
    check_on_gpu(sloped(LseCase{{{2, 530, 1, 4, window, true, 2}, holes_and_nothing(530)}}, 0.5));
  }
  check_on_gpu(LseCase{{{1, 1025, 1, 8}}});
  for (Index window : {0, 3}) check_alignment(LseCase{decaying({{1, 9, 2, 8, window, true, 2}})});
}

// The incoming gradient at positions without unmasked positions has no effect. Masked inputs get exactly 0.
TEST_CASE("pooling: on the GPU, the gradient of the logarithm of an empty sum is not read", "[pooling][gpu]") {
  const Index C = 530;
  for (bool causal : {true, false}) {
    for (Index window : {0, 3, 300}) {
      if (!causal && window > 0) continue;
      const LseCase layer{{{2, C, 1, 4, window, causal}, holes_and_nothing(C)}};
      const Values<float> in = converted<float>(random_values(layer.inputs(), 1));
      Values<float> d_out = converted<float>(random_values(layer.outputs(), 2));
      for (Index c = 0; c < 2 * C; ++c) {
        if (c >= C || (causal && c < C / 4)) d_out[1][size(c)] = std::numeric_limits<float>::quiet_NaN();
      }
      for_each_gpu([&](auto& device, const std::string& name) {
        INFO(name << ", window " << window << ", causal " << causal);
        const Values<double> d_in = run_backward<float>(layer, device, in, d_out);
        CHECK(std::isfinite(largest(d_in[0])));
        CHECK(std::isfinite(largest(d_in[1])));
        Index not_zero = 0;
        for (Index c = 0; c < 2 * C; ++c) {
          if (layer.mask_bc[size(c)] != 0) continue;
          not_zero += d_in[0][size(c)] != 0;
          for (Index k = 0; k < 4; ++k) not_zero += d_in[1][size(c * 4 + k)] != 0;
        }
        CHECK(not_zero == 0);
      });
    }
  }
}

}  // namespace
}  // namespace abh
