#include <limits>

#include "extras/leap/leap_gate.hpp"
#include "extras/leap/leap_gate_case.hpp"
#include "tests/harness/layer_case.hpp"

namespace abh {
namespace {

// Maxima near 0, where epsilon is negligible, and near its logarithm, where it is half of the sum.
TEST_CASE("leap_gate: every derivative, at every SIMD width", "[leap_gate]") {
  check_layer(LeapGateCase{.B = 2, .C = 5, .N = 3, .K = 7, .scale = 0.4, .max = -11.5});
  check_layer(LeapGateCase{.B = 1, .C = 37, .N = 2, .K = 19, .scale = 0.25, .max = -12, .gap = 5});
  check_layer(LeapGateCase{.B = 1, .C = 9, .N = 2, .K = 8, .scale = 0.35, .max = 0, .gap = 3, .d_gap = 8});
  check_layer(LeapGateCase{.B = 1, .C = 1, .N = 1, .K = 1, .scale = 1, .max = -11});
  check_widths([](Index size) { return LeapGateCase{.B = 2, .C = 3, .N = 2, .K = size, .scale = 0.2, .max = -11.5}; });
}

TEST_CASE("leap_gate: the worked example of the chapter", "[leap_gate]") {
  const LeapGateCase layer{1, 1, 1, 2, 2};
  const Values<double> in = {{2, -1}, {1, 2, 8, 4}, {log_leap_epsilon}, {1}};
  const auto check = [&](auto& device) {
    CHECK(run_forward<double>(layer, device, in)[0] == Array<double>{2, 1});
    const Values<double> d_in = run_backward<double>(layer, device, in, {{1, 3}});
    CHECK(d_in[0] == Array<double>{2.5, 5});
    CHECK(d_in[1] == Array<double>{5, -2.5, 0.25, 0.75});
    CHECK(d_in[2] == Array<double>{2.5});
  };
  PlainDevice plain;
  CpuDevice<Isa::baseline> cpu(1);
  check(plain);
  check(cpu);
}

// No weight, almost no weight, much weight, and the largest weight without overflow. The queries' products are +-300
// times the share, far beyond the ends of the gate.
TEST_CASE("leap_gate: weights and scores of any magnitude", "[leap_gate][gpu]") {
  const float nothing = -std::numeric_limits<float>::infinity();
  const LeapGateCase layer{1, 5, 1, 1, 300};
  const Values<float> in = {
      {1, 1, 1, 1, -1}, {0, 0, 2, 3, 1, 5, 1, 5, 1, 5}, {nothing, -1e30f, -30, 10, 1e30f}, {0, 1, 1, 1, 1}};
  for_each_device(1, [&](auto& device) {
    CHECK(run_forward<float>(layer, device, in)[0][0] == 0);
    CHECK(run_forward<float>(layer, device, in)[0][1] == 0);
    const Values<double> d_in = run_backward<float>(layer, device, in, {{1, 1, 1, 1, 1}});
    for (const Array<double>& gradient : d_in) {
      for (double x : gradient) CHECK(std::isfinite(x));
    }
    for (std::size_t c : {0u, 1u}) CHECK((d_in[0][c] == 0 && d_in[2][c] == 0));
    CHECK((d_in[1][0] == 0 && d_in[1][1] == 0));
    // The share is 1 in float, but 1 - share is still exact: d_lse = (1 - share) d_pooled . pooled. The gate is open.
    const double rest = leap_epsilon * std::exp(-10.0);
    CHECK_FALSE(!(std::abs(d_in[2][3] - 5 * rest) <= 1e-5 * 5 * rest));
  });
}

TEST_CASE("leap_gate: many rows", "[leap_gate]") {
  check_float(LeapGateCase{.B = 3, .C = 701, .N = 2, .K = 3, .scale = 0.5, .max = -11}, 1);
  check_threads(LeapGateCase{.B = 3, .C = 701, .N = 2, .K = 3, .scale = 0.5, .max = -11}, 1);
}

TEST_CASE("leap_gate: no sequences", "[leap_gate][gpu]") { check_no_rows(LeapGateCase{0, 5, 1, 2}); }

TEST_CASE("leap_gate: on the GPU, heads of any size", "[leap_gate][gpu]") {
  check_gpu("leap_gate", LeapGateCase{.B = 3, .C = 37, .N = 5, .K = 8, .scale = 0.35, .max = -11.5});
  for (Index K : {1, 3, 8, 33, 64, 100, 300}) {
    const double scale = 1 / std::sqrt(double(K));
    check_gpu("leap_gate", LeapGateCase{.B = 2, .C = 19, .N = 2, .K = K, .scale = scale, .max = -11.5},
              LeapGateCase{.B = 1, .C = 9, .N = 2, .K = K, .scale = scale, .max = 0, .gap = K % 4 == 0 ? 12 : 5});
  }
  check_gpu("leap_gate", LeapGateCase{.B = 3, .C = 1, .N = 5, .K = 8, .scale = 0.35, .max = -11.5},
            LeapGateCase{.B = 1, .C = 9, .N = 2, .K = 8, .scale = 0.35, .max = -11.5, .gap = 3, .d_gap = 8},
            LeapGateCase{.B = 1, .C = 9, .N = 2, .K = 8, .scale = 0.35, .max = -11.5, .gap = 4, .d_gap = 5},
            LeapGateCase{.B = 1, .C = 9, .N = 2, .K = 6, .scale = 0.35, .max = -11.5});
  check_alignment(LeapGateCase{.B = 1, .C = 9, .N = 2, .K = 8, .scale = 0.35, .max = -11.5});
}

}  // namespace
}  // namespace abh
