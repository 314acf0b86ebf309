#include "extras/leap/leap_logits.hpp"
#include "extras/leap/leap_logits_case.hpp"
#include "tests/harness/layer_case.hpp"

namespace abh {
namespace {

// Focus and keys are slices of rows of N K + gap elements; the gradient of the keys is added to.
TEST_CASE("leap_logits: every derivative, at every SIMD width", "[leap_logits]") {
  check_layer(LeapLogitsCase{.B = 2, .C = 5, .N = 3, .K = 7});
  check_layer(LeapLogitsCase{.B = 2, .C = 5, .N = 3, .K = 7, .form = FocusForm::exp, .scale = 0.4});
  check_layer(LeapLogitsCase{.B = 1, .C = 37, .N = 2, .K = 19, .form = FocusForm::elu, .scale = 0.25, .gap = 5});
  check_layer(
      LeapLogitsCase{.B = 1, .C = 9, .N = 2, .K = 8, .form = FocusForm::exp, .scale = 0.5, .gap = 3, .d_gap = 8});
  check_layer(LeapLogitsCase{.B = 1, .C = 1, .N = 1, .K = 1});
  check_widths([](Index size) {
    return LeapLogitsCase{.B = 2, .C = 3, .N = 2, .K = size, .form = FocusForm::elu, .scale = 0.3};
  });
}

TEST_CASE("leap_logits: the worked example of the chapter", "[leap_logits]") {
  const Values<double> in = {{1, 2, 0, 2, 2, 0, -2, 0}, {2, 1, 5, 1, 1, 3, 2, -4}};
  const Values<double> d_out = {{8, 6}};
  const auto check = [&](auto& device) {
    const LeapLogitsCase elu{1, 2, 1, 4, FocusForm::elu, 0.5}, exp{1, 2, 1, 4, FocusForm::exp, 0.5};
    const Array<double> logit = run_forward<double>(elu, device, in)[0];
    CHECK_FALSE(!(std::abs(logit[0] - std::log(4.0)) <= 1e-15));
    CHECK(logit[1] == -1);
    CHECK(run_forward<double>(exp, device, in)[0] == Array<double>{3, -1});

    const Values<double> d_elu = run_backward<double>(elu, device, in, d_out);
    const Values<double> expected = {{2, 1, 5, 1, 3, 9, 6, -12}, {1, 2, 0, 2, 6, 0, -6, 0}};
    require_close(elu.inputs(), d_elu, expected, 1e-15, "elu");
    const Values<double> d_exp = run_backward<double>(exp, device, in, d_out);
    CHECK(d_exp[0] == Array<double>{8, 4, 20, 4, 3, 9, 6, -12});
    CHECK(d_exp[1] == Array<double>{4, 8, 0, 8, 6, 0, -6, 0});
  };
  PlainDevice plain;
  CpuDevice<Isa::baseline> cpu(1);
  check(plain);
  check(cpu);
}

// Scores of 0, far below and far above it. In elu a weight is never less than e^score, which a sum 1 + (e^score - 1)
// has lost long before -40.
TEST_CASE("leap_logits: scores of any magnitude", "[leap_logits][gpu]") {
  const LeapLogitsCase elu{1, 6, 1, 1}, exp{1, 6, 1, 1, FocusForm::exp};
  const Values<float> in = {{0, -40, -1e30f, 1e-6f, 40, 1e30f}, {1, 1, 1, 1, 1, 1}};
  const Values<float> d_out = {{1, 1, 1, 1, 1, 1}};
  for_each_device(1, [&](auto& device) {
    const Array<float> logit = run_forward<float>(elu, device, in)[0];
    for (const std::size_t c : {0u, 1u, 2u}) CHECK(logit[c] == in[0][c]);
    for (const std::size_t c : {3u, 4u, 5u}) {
      const double expected = std::log1p(double(in[0][c]));
      CHECK_FALSE(!(std::abs(logit[c] - expected) <= 2e-7 * expected));
    }
    CHECK(run_forward<float>(exp, device, in)[0] == in[0]);
    const Array<double> d_focus = run_backward<float>(elu, device, in, d_out)[0];
    for (std::size_t c = 0; c < 6; ++c) {
      const double expected = in[0][c] > 0 ? 1 / (1 + double(in[0][c])) : 1;
      CHECK_FALSE(!(std::abs(d_focus[c] - expected) <= 1e-5 * expected));
    }
  });
}

TEST_CASE("leap_logits: many rows", "[leap_logits]") {
  check_float(LeapLogitsCase{.B = 3, .C = 701, .N = 2, .K = 3}, 1);
  check_threads(LeapLogitsCase{.B = 3, .C = 701, .N = 2, .K = 3}, 1);
}

TEST_CASE("leap_logits: no sequences", "[leap_logits][gpu]") { check_no_rows(LeapLogitsCase{0, 5, 1, 2}); }

TEST_CASE("leap_logits: on the GPU, heads of any size", "[leap_logits][gpu]") {
  check_gpu("leap_logits", LeapLogitsCase{.B = 3, .C = 37, .N = 5, .K = 8, .form = FocusForm::elu, .scale = 0.35});
  for (Index K : {1, 3, 8, 33, 64, 100, 300}) {
    const double scale = 1 / std::sqrt(double(K));
    check_gpu("leap_logits", LeapLogitsCase{.B = 2, .C = 19, .N = 2, .K = K, .form = FocusForm::elu, .scale = scale},
              LeapLogitsCase{
                  .B = 1, .C = 9, .N = 2, .K = K, .form = FocusForm::exp, .scale = scale, .gap = K % 4 == 0 ? 12 : 5});
  }
  check_gpu("leap_logits", LeapLogitsCase{.B = 3, .C = 1, .N = 5, .K = 8},
            LeapLogitsCase{.B = 1, .C = 9, .N = 2, .K = 8, .form = FocusForm::elu, .scale = 1, .gap = 3, .d_gap = 8},
            LeapLogitsCase{.B = 1, .C = 9, .N = 2, .K = 8, .form = FocusForm::elu, .scale = 1, .gap = 4, .d_gap = 5},
            LeapLogitsCase{.B = 1, .C = 9, .N = 2, .K = 6});
  check_alignment(LeapLogitsCase{.B = 1, .C = 9, .N = 2, .K = 8});
}

}  // namespace
}  // namespace abh
