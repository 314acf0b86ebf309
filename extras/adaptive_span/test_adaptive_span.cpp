#include <algorithm>
#include <cmath>
#include <random>

#include "extras/adaptive_span/adaptive_span.hpp"
#include "extras/adaptive_span/adaptive_span_case.hpp"
#include "tests/harness/layer_case.hpp"
#include "tests/harness/model_case.hpp"

namespace abh {
namespace {

AdaptiveSpanCase span_case(Index N, Index distances, double ramp, double largest_span, bool has_base = false) {
  return {.N = N,
          .distances = distances,
          .ramp = ramp,
          .largest_span = largest_span,
          .has_base = has_base,
          .reach_n = kept(Array<Index>(static_cast<std::size_t>(N))),
          .first_n = kept(Array<Index>(static_cast<std::size_t>(N)))};
}

// Runs body(device, name, T{}) on every device, in all numbers that it takes.
template <class Body>
void everywhere(const Body& body) {
  PlainDevice plain;
  body(plain, "plain", double{});
  CpuDevice<Isa::baseline> cpu(2);
  body(cpu, "cpu, double", double{});
  for_each_device(2, [&](auto& device) { body(device, "float", float{}); });
}

TEST_CASE("adaptive_span: every derivative, at every SIMD width", "[adaptive_span]") {
  check_layer(span_case(3, 40, 4, 9));
  check_layer(span_case(1, 1, 2, 5));
  check_layer(span_case(2, 70, 12.5, 30, true));
  check_layer(span_case(2, 9, 20, 30));  // the ramp ends after the last distance
  check_widths([](Index size) { return span_case(2, 3 * size, 5, static_cast<double>(size)); });
}

TEST_CASE("adaptive_span: GPU kernels at every size", "[adaptive_span][gpu]") {
  check_gpu("adaptive_span", span_case(3, 40, 4, 9), span_case(5, 700, 32, 300, true), span_case(2, 9, 20, 30));
}

// extras/adaptive_span/README.md.
TEST_CASE("adaptive_span: the worked example of the chapter", "[adaptive_span][gpu]") {
  everywhere([]<class T>(auto& device, const std::string& name, T) {
    INFO(name);
    // A span of 1 and one of 0, over a ramp of 4.
    const AdaptiveSpanCase layer = span_case(2, 6, 4, 1);
    const Values<T> in = {{T(1), T(0)}};
    const Array<T> bias = run_forward<T>(layer, device, in)[0];
    const double mask[2][6] = {{1, 1, 0.75, 0.5, 0.25, 0}, {1, 0.75, 0.5, 0.25, 0, 0}};
    for (Index i = 0; i < 12; ++i) {
      const double expected = mask[i / 6][i % 6] > 0 ? std::log(mask[i / 6][i % 6]) : 0;
      CHECK_FALSE(!(std::abs(static_cast<double>(bias[static_cast<std::size_t>(i)]) - expected) <= 1e-6));
    }
    CHECK(std::vector<Index>(layer.first_n, layer.first_n + 2) == std::vector<Index>{2, 1});
    CHECK(std::vector<Index>(layer.reach_n, layer.reach_n + 2) == std::vector<Index>{5, 4});
    // 3/3 + 2/2 + 1/1, and the same for another head; values at other distances have no effect.
    const Values<T> d_bias = {{T(9), T(9), T(3), T(2), T(1), T(9), T(9), T(6), T(4), T(2), T(9), T(9)}};
    const Array<double> d_span = run_backward<T>(layer, device, in, d_bias)[0];
    CHECK_FALSE(!(std::abs(d_span[0] - 3) <= 1e-6));
    CHECK_FALSE(!(std::abs(d_span[1] - 6) <= 1e-6));
    AdaptiveSpanCase priced = layer;
    priced.penalty = 0.5;
    CHECK_FALSE(!(std::abs(run_backward<T>(priced, device, in, d_bias)[0][0] - 3.25) <= 1e-6));
  });
}

TEST_CASE("adaptive_span: the range ends where the mask becomes 0, for any span", "[adaptive_span][gpu]") {
  std::mt19937 random(5);
  everywhere([&]<class T>(auto& device, const std::string& name, T) {
    INFO(name);
    const Index N = 200, distances = 60;
    const AdaptiveSpanCase layer = span_case(N, distances, 7, 1);
    Values<T> in(1);
    for (Index n = 0; n < N; ++n) {
      const double span = std::uniform_real_distribution<double>(0, 70)(random);
      in[0].push_back(T(n % 3 == 0 ? std::round(span) : span));
    }
    run_forward<T>(layer, device, in);
    for (Index n = 0; n < N; ++n) {
      const auto span = static_cast<double>(in[0][static_cast<std::size_t>(n)]);
      const auto count = [&](double end) { return std::min(static_cast<Index>(end), distances); };
      CAPTURE(span);
      CHECK(layer.reach_n[n] == count(std::ceil(7 + span)));
      CHECK(layer.first_n[n] == count(std::floor(span) + 1));
    }
  });
}

// A penalty so large that the gradient is all but that of the penalty.
TEST_CASE("adaptive_span: the penalty counts once per step, in shards and in chunks",
          "[adaptive_span][shards][chunks]") {
  ModelConfig config{.layers = 2, .channels = 8, .heads = 2, .context = 12, .vocabulary = 9, .mixer = "dot,metric"};
  config.extras.span = 6;
  config.extras.ramp = 3;
  Batch batch{.B = 4, .C = 12};
  for (Index i = 0; i < 48; ++i) {
    batch.token_bc.push_back(static_cast<Token>(i * i % 9));
    batch.target_r.push_back(static_cast<Token>((3 * i + 1) % 9));
  }
  const auto norm = [&](double penalty, Index shards, Index chunk, const std::string& device) {
    config.extras.penalty = penalty;
    TrainingConfig training{.batch = 4, .steps = 9, .warmup = 0};
    training.shards = shards;
    training.chunk = chunk;
    const auto model = new_model({.device = device, .threads = 1}, config, training, 0.2);
    return model->train_step(batch, training, 0).gradient_norm;
  };
  const double expected = norm(50, 1, 0, "plain");
  CHECK(expected > 5 * norm(0, 1, 0, "plain"));
  for (const std::string& device : float_devices()) {
    for (const Index shards : {1, 2, 4}) {
      for (const Index chunk : {0, 5}) {
        if (device == "emulated" && shards + chunk != 2 && shards + chunk != 6) continue;  // it is slow
        CAPTURE(device, shards, chunk);
        CHECK_FALSE(!(std::abs(norm(50, shards, chunk, device) - expected) <= 1e-4 * expected));
      }
    }
  }
}

TEST_CASE("adaptive_span: a span is clamped to its valid range", "[adaptive_span][gpu]") {
  everywhere([]<class T>(auto& device, const std::string& name, T) {
    INFO(name);
    using Device = std::remove_reference_t<decltype(device)>;
    Array<T> span = {T(-1), T(0), T(3.5), T(9), T(1e30)};
    adaptive_span_clamp<Device, T>(device, span.data(), nullptr, 8, 5);
    wait_for(device);
    CHECK(span == Array<T>{T(0), T(0), T(3.5), T(8), T(8)});
  });
  for_each_gpu([](auto& device, const std::string& name) {
    INFO(name);
    using Device = std::remove_reference_t<decltype(device)>;
    Array<bf16> span = {bf16(7.0f), bf16(7.0f)};
    Array<float> master = {-2, 7.03125f};
    adaptive_span_clamp<Device, bf16>(device, span.data(), master.data(), 7.03f, 2);
    wait_for(device);
    CHECK(master == Array<float>{0, 7.03f});
    CHECK(converted<double>(Values<bf16>{span})[0] == Array<double>{0, 7.03125});
  });
}

}  // namespace
}  // namespace abh
