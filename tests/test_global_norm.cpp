#include "layers/global_norm.hpp"
#include "tests/layer_case.hpp"

namespace abh {
namespace {

template <class T, class Device>
StepState run(Device& device, const Array<T>& gradient, double clip) {
  StepState state;
  state.gradient_norm = state.clip_scale = -1;
  global_norm<Device, T>(device, &state, gradient.data(), clip, static_cast<Index>(gradient.size()));
  return state;
}

Array<float> gradient_of(Index count, double scale = 1) {
  return converted<float>(Values<double>{random_values(activation("gradient", count, scale), 3, 0)})[0];
}

TEST_CASE("global_norm: odd sizes, every width, any number of threads", "[global_norm]") {
  for (Index count : {1, 7, 33, 16384, 16385, 5 * 16384 + 19}) {
    const Array<float> gradient = gradient_of(count);
    long double sum = 0;
    for (float x : gradient) sum += static_cast<long double>(x) * static_cast<long double>(x);
    const double norm = static_cast<double>(std::sqrt(sum));
    Array<double> norms;
    for (Index threads : {1, 1, 2, 3, 7}) {
      for_each_cpu(threads, [&](auto& device, const std::string& isa) {
        INFO(isa << ", " << count << " elements, " << threads << " threads");
        const StepState state = run(device, gradient, 0.25);
        CHECK_FALSE(!(std::abs(state.gradient_norm - norm) <= 1e-13 * norm));
        CHECK_FALSE(!(std::abs(state.clip_scale - std::min(1.0, 0.25 / norm)) <= 1e-13));
        norms.push_back(state.gradient_norm);
      });
    }
    const std::size_t devices = norms.size() / 5;
    for (std::size_t i = devices; i < norms.size(); ++i) CHECK(norms[i] == norms[i % devices]);
  }
}

TEST_CASE("global_norm: cuts to the clip, never lengthens, 0 is off", "[global_norm]") {
  for_each_cpu(1, [](auto& device, const std::string& isa) {
    INFO(isa);
    const Array<float> gradient = {3, 0, -4};
    CHECK(run(device, gradient, 1).gradient_norm == 5);
    CHECK(run(device, gradient, 1).clip_scale == 0.2);
    CHECK(run(device, gradient, 5).clip_scale == 1);
    CHECK(run(device, gradient, 10).clip_scale == 1);
    CHECK(run(device, gradient, 0).gradient_norm == 5);
    CHECK(run(device, gradient, 0).clip_scale == 1);
  });
}

TEST_CASE("global_norm: zero gradient, or none", "[global_norm]") {
  for_each_cpu(2, [](auto& device, const std::string& isa) {
    INFO(isa);
    for (std::size_t count : {0u, 40u}) {
      const StepState state = run(device, Array<float>(count, 0), 1);
      CHECK(state.gradient_norm == 0);
      CHECK(state.clip_scale == 1);
    }
  });
}

TEST_CASE("global_norm: squares that a float cannot hold", "[global_norm]") {
  for_each_cpu(1, [](auto& device, const std::string& isa) {
    INFO(isa);
    for (float size : {1e30f, 1e-30f}) {
      const StepState state = run(device, Array<float>(100, size), 1);
      CHECK_FALSE(!(std::abs(state.gradient_norm / (10 * static_cast<double>(size)) - 1) <= 1e-14));
      CHECK_FALSE(!(std::abs(state.clip_scale - std::min(1.0, 1 / state.gradient_norm)) <= 1e-14 * state.clip_scale));
    }
  });
}

TEST_CASE("global_norm: double gradients", "[global_norm]") {
  CpuDevice<Isa::baseline> device(1);
  const StepState state = run(device, Array<double>{3e100, 4e100}, 1);
  CHECK_FALSE(!(std::abs(state.gradient_norm / 5e100 - 1) <= 1e-15));
}

TEST_CASE("global_norm: NaN and infinity are told, not hidden", "[global_norm]") {
  for_each_cpu(1, [](auto& device, const std::string& isa) {
    for (std::size_t position : {0u, 20u, 36u}) {
      for (double clip : {0.0, 1.0}) {
        INFO(isa << ", position " << position << ", clip " << clip);
        Array<float> gradient = gradient_of(37);
        gradient[position] = std::numeric_limits<float>::quiet_NaN();
        StepState state = run(device, gradient, clip);
        CHECK(std::isnan(state.gradient_norm));
        CHECK(std::isnan(state.clip_scale));
        gradient[position] = -std::numeric_limits<float>::infinity();
        state = run(device, gradient, clip);
        CHECK(state.gradient_norm == std::numeric_limits<double>::infinity());
        CHECK(std::isnan(state.clip_scale));
      }
    }
  });
}

}  // namespace
}  // namespace abh
