// Pooling with decay, and with several payloads. Functions with a window are declared in
// tests/harness/pooling_checks.hpp, for the tests of windows, [pooling_sliding_window].

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/harness/pooling_checks.hpp"

namespace abh {

void check_decay_derivatives(Index window) {
  INFO("window " << window);
  check_every_derivative(decaying({{2, 11, 2, 5, window}}));
  check_every_derivative(decaying({{2, 11, 2, 3, window}, holes_and_nothing(11)}));
  check_every_derivative(decaying({{2, 7, 2, 3, window}, holes_and_nothing(7), true, 4, 9}));
}

TEST_CASE("pooling: decay, every derivative", "[pooling]") {
  check_decay_derivatives(0);
  check_every_derivative(decaying({{1, 4, 1, 150}}));
  check_every_derivative(decaying({{9, 5, 2, 3}}));  // enough sequences for one task each
  check_every_derivative(decaying({{1, 1, 2, 3}}));
}

void check_payload_derivatives(Index window) {
  for (Index payloads : {2, 3}) {
    INFO("window " << window << ", payloads " << payloads);
    check_every_derivative({{2, 7, 2, 3, window, true, payloads}});
    check_every_derivative({{2, 7, 2, 3, window, true, payloads}, holes_and_nothing(7), true, 4, 9});
    check_every_derivative(decaying({{2, 7, 2, 3, window, true, payloads}, holes_and_nothing(7)}));
  }
}

TEST_CASE("pooling: several payloads, every derivative", "[pooling]") {
  check_payload_derivatives(0);
  check_every_derivative({{1, 4, 1, 150, 0, true, 2}});
  check_every_derivative({{9, 5, 2, 3, 0, true, 2}});
}

TEST_CASE("pooling: decay and several payloads, SIMD widths agree at every odd size", "[pooling]") {
  check_widths([](Index size) { return decaying({{2, size, 2, size, 0, true, 2}}); });
}

// Slopes small enough to keep weight across several chunks, and larger slopes.
void check_decay_of_chunks(const PoolingShape& shape) {
  for (double scale : {1.0, 20.0}) {
    for (double slope : {0.0, 0.001, 0.05, 2.0}) {
      for (bool masked : {false, true}) {
        const Token* mask_bc = masked ? holes_and_nothing(shape.C) : nullptr;
        LseCase layer{{shape, shape.B == 2 ? mask_bc : nullptr}};
        layer.decays = shape.causal;
        std::vector<TensorSpec> specs = layer.inputs();
        specs[0].scale = scale;
        Values<float> in = converted<float>(random_values(specs, 5));
        if (layer.decays) in[2] = Array<float>(size(shape.N), static_cast<float>(slope));
        const Values<float> d_out = converted<float>(random_values(layer.outputs(), 6));
        const Values<double> in_double = converted<double>(in), d_out_double = converted<double>(d_out);
        PlainDevice plain;
        const Values<double> out = run_forward<double>(layer, plain, in_double);
        const Values<double> d_in = run_backward<double>(layer, plain, in_double, d_out_double);
        INFO("heads of " << shape.K << ", logits of " << scale << ", slope " << slope);
        CpuDevice<Isa::baseline> device(1);
        require_close(layer.outputs(), run_forward<double>(layer, device, in_double), out, 1e-12, "forward");
        require_close(specs, run_backward<double>(layer, device, in_double, d_out_double), d_in, 1e-12, "backward");
        for_each_cpu(1, [&](auto& any, const std::string& isa) {
          require_close(layer.outputs(), converted<double>(run_forward<float>(layer, any, in)), out, 1e-5,
                        "float forward, " + isa);
          require_close(specs, run_backward<float>(layer, any, in, d_out), d_in, 2e-5, "float backward, " + isa);
        });
      }
    }
  }
}

TEST_CASE("pooling: few long sequences with decay and payloads, split into chunks", "[pooling][heavy]") {
  check_decay_of_chunks({2, 1040, 1, 9, 0, true, 2});
  check_decay_of_chunks({1, 1100, 2, 5});
  check_threads(decaying({{2, 700, 2, 11, 0, true, 2}, nullptr, true, 5, 9}), 1);
}

// Where the maximum is a number that is lowered at every position, the float of 0.003 is wrong by 9e-3 here.
TEST_CASE("pooling: decay over 65,536 positions in float", "[pooling][heavy]") {
  const PoolingCase layer = decaying({{1, 65536, 1, 4}});
  PlainDevice plain;
  for (double slope : {0.5, 1.0 / 256, 0.63, 0.003}) {
    std::vector<TensorSpec> specs = layer.inputs();
    specs[0].scale = 20;
    Values<float> in = converted<float>(random_values(specs, 8));
    in[2] = {static_cast<float>(slope)};
    const Values<float> d_out = converted<float>(random_values(layer.outputs(), 9));
    const Values<double> out = run_forward<double>(layer, plain, converted<double>(in));
    const Values<double> d_in = run_backward<double>(layer, plain, converted<double>(in), converted<double>(d_out));
    INFO("slope " << slope);
    for_each_cpu(1, [&](auto& device, const std::string& name) {
      require_close(layer.outputs(), converted<double>(run_forward<float>(layer, device, in)), out, 1e-5, name);
      // Where sums hardly move, the plain loops' sum (1 / sum) is off by the same bit at every position.
      require_close(specs, run_backward<float>(layer, device, in, d_out), d_in, name == "plain" ? 3e-5 : 1e-5, name);
    });
  }
}

// A logit keeps its distance when positions between are masked.
void check_masked_distance(Index window) {
  for_each_cpu(1, [&](auto& device, const std::string& name) {
    Array<Token> mask_bc(5, 0);
    mask_bc[0] = mask_bc[3] = 1;
    const PoolingCase layer = decaying({{1, 5, 1, 1, window}, kept(mask_bc)});
    const Array<float> out = run_forward<float>(layer, device, {{1, 0, 0, 2, 0}, {5, 0, 0, 7, 0}, {0.5f}})[0];
    const double older = std::exp(1 - 3 * 0.5), newer = std::exp(2);
    INFO(name << ", window " << window);
    const double expected[] = {5, 5, 5, (5 * older + 7 * newer) / (older + newer), 7};
    for (std::size_t c = 0; c < (window > 0 ? 5u : 4u); ++c) CHECK(std::abs(out[c] - expected[c]) < 1e-6);
  });
}

TEST_CASE("pooling: masked positions count in the distance of the decay", "[pooling]") { check_masked_distance(0); }

// A payload is pooled the same with and without another payload in its head.
void check_payloads_side_by_side(Index window) {
  PlainDevice plain;
  const PoolingCase both{{2, 7, 2, 3, window, true, 2}}, one{{2, 7, 2, 3, window}};
  const Values<double> in = random_values(both.inputs(), 1);
  const Array<double> out = run_forward<double>(both, plain, in)[0];
  for (Index payload : {0, 1}) {
    Array<double> x, expected;
    for (Index i = 0; i < 2 * 7 * 12; ++i) {
      if (i % 12 / 6 != payload) continue;
      x.push_back(in[1][size(i)]);
      expected.push_back(out[size(i)]);
    }
    require_close(one.outputs(), run_forward<double>(one, plain, {in[0], x}), {expected}, 1e-14, "one payload");
  }
}

TEST_CASE("pooling: each payload equals a separate pooling", "[pooling]") { check_payloads_side_by_side(0); }

void check_slope_of_zero(Index window) {
  for_each_cpu(1, [&](auto& device, const std::string& name) {
    const PoolingCase layer{{2, 37, 3, 5, window}, holes_and_nothing(37)};
    Values<float> in = converted<float>(random_values(layer.inputs(), 3));
    const Values<float> d_out = converted<float>(random_values(layer.outputs(), 4));
    const Values<float> out = run_forward<float>(layer, device, in);
    const Values<double> d_in = run_backward<float>(layer, device, in, d_out);
    in.push_back(Array<float>(3, 0.0f));
    INFO(name << ", window " << window);
    CHECK((run_forward<float>(decaying(layer), device, in) == out));
    const Values<double> d_in_decayed = run_backward<float>(decaying(layer), device, in, d_out);
    CHECK((d_in_decayed[0] == d_in[0] && d_in_decayed[1] == d_in[1]));
  });
}

TEST_CASE("pooling: a slope of 0 changes no bit", "[pooling]") { check_slope_of_zero(0); }

// A large change of a position changes every output whose window includes it, and no bit of the others.
void check_influence_with_decay(Index window) {
  for (Index C : {23, 600}) {
    const PoolingCase layer = decaying({{1, C, 2, 21, window, true, 2}});
    for_each_cpu(1, [&](auto& device, const std::string& name) {
      Values<float> in = converted<float>(random_values(layer.inputs(), 1));
      in[2] = {0.001f, 0.01f};
      const Array<float> out = run_forward<float>(layer, device, in)[0];
      for (const Index changed : {Index{0}, Index{5}, Index{11}, C / 2, C - 2}) {
        Values<float> other = in;
        for (Index n = 0; n < 2; ++n) other[0][size(n * C + changed)] += 50;
        for (Index h = 0; h < 84; ++h) other[1][size(changed * 84 + h)] = 1e6f;
        const Array<float> got = run_forward<float>(layer, device, other)[0];
        Index wrong = 0;
        for (Index i = 0; i < C * 84; ++i) {
          const Index c = i / 84;
          const bool sees = changed <= c && (window == 0 || changed > c - window);
          wrong += (got[size(i)] == out[size(i)]) == sees;
        }
        INFO(name << ", window " << window << ", position " << changed << " of " << C);
        CHECK(wrong == 0);
      }
    });
  }
}

TEST_CASE("pooling: with decay, positions later or outside the window have no influence", "[pooling]") {
  check_influence_with_decay(0);
}

TEST_CASE("pooling: several payloads, no sequences, no positions", "[pooling][gpu]") {
  check_no_rows(decaying({{0, 5, 2, 3, 0, true, 2}}));
  check_no_rows(decaying({{2, 0, 2, 3, 0, true, 2}}));
}

void check_steps_with_decay(Index window) {
  PlainDevice plain;
  for (double scale : {1.0, 30.0}) {
    for (Index payloads : {1, 2}) {
      for (bool decays : {false, true}) {
        PoolingCase layer{{2, 37, 3, 9, window, true, payloads}};
        layer.decays = decays;
        std::vector<TensorSpec> specs = layer.inputs();
        specs[0].scale = scale;
        const Values<double> in = converted<double>(converted<float>(random_values(specs, 4)));
        INFO("window " << window << ", logits of " << scale << ", payloads " << payloads << ", decays " << decays);
        const Values<double> expected = run_forward<double>(layer, plain, in);
        CpuDevice<Isa::baseline> device(1);
        require_close(layer.outputs(), {steps<double>(plain, layer.shape, in)}, expected, 1e-11, "plain");
        require_close(layer.outputs(), {steps<double>(device, layer.shape, in)}, expected, 1e-11, "double");
        for_each_cpu(1, [&](auto& any, const std::string& name) {
          require_close(layer.outputs(), {steps<float>(any, layer.shape, in)}, expected, 1e-4, name);
        });
      }
    }
  }
}

TEST_CASE("pooling: inference with decay and several payloads", "[pooling]") {
  check_steps_with_decay(0);
  CHECK(pooling_state_size({1, 64, 4, 8}, true) == 4 * 20);
  CHECK(pooling_state_size({1, 64, 4, 8, 0, true, 2}) == 4 * 35);
}

}  // namespace abh
