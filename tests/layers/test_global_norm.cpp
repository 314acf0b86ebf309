#include "layers/global_norm.hpp"
#include "tests/harness/layer_case.hpp"
#include "tests/harness/plain_and_cpu.hpp"

namespace abh {
namespace {

// T is the type of the weights; their gradient has type Accum<T>.
template <class T, class Device>
StepState run_as(Device& device, const Array<Accum<T>>& gradient, double clip, Index begin = 0) {
  Array<StepState> state(1);
  state[0].gradient_norm = state[0].clip_scale = -1;
  global_norm<Device, T>(device, state.data(), gradient.data() + begin, clip,
                         static_cast<Index>(gradient.size()) - begin);
  wait_for(device);
  return state[0];
}
template <class T, class Device>
StepState run(Device& device, const Array<T>& gradient, double clip) {
  return run_as<T>(device, gradient, clip);
}

double norm_of(const Array<float>& gradient) {
  PlainDevice plain;
  return run(plain, converted<double>(Values<float>{gradient})[0], 0).gradient_norm;
}

Array<float> gradient_of(Index count, double scale = 1) {
  return converted<float>(Values<double>{random_values(activation("gradient", {count}, scale), 3, 0)})[0];
}

TEST_CASE("global_norm: odd sizes, at every SIMD width, with any number of threads", "[global_norm]") {
  for (Index count : {1, 7, 31, 33, 127, 193, 16384, 16385, 5 * 16384 + 19}) {
    const Array<float> gradient = gradient_of(count);
    const double norm = norm_of(gradient);
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

TEST_CASE("global_norm: clips to the limit, never lengthens, 0 is off", "[global_norm][gpu]") {
  for_each_device(1, [](auto& device) {
    const Array<float> gradient = {3, 0, -4};
    CHECK(run(device, gradient, 1).gradient_norm == 5);
    CHECK(run(device, gradient, 1).clip_scale == 0.2);
    CHECK(run(device, gradient, 5).clip_scale == 1);
    CHECK(run(device, gradient, 10).clip_scale == 1);
    CHECK(run(device, gradient, 0).gradient_norm == 5);
    CHECK(run(device, gradient, 0).clip_scale == 1);
  });
}

TEST_CASE("global_norm: the worked example of the chapter", "[global_norm]") {
  on_plain_and_cpu([](auto& device) {
    const Array<double> gradient = {3, 4};
    const StepState cut = run(device, gradient, 1), kept = run(device, gradient, 10);
    CHECK(cut.gradient_norm == 5);
    CHECK(cut.clip_scale == 0.2);
    CHECK_FALSE(!(std::abs(cut.clip_scale * gradient[0] - 0.6) <= 1e-15));
    CHECK_FALSE(!(std::abs(cut.clip_scale * gradient[1] - 0.8) <= 1e-15));
    CHECK(kept.clip_scale == 1);
  });
}

TEST_CASE("global_norm: zero gradient, or no gradient", "[global_norm][gpu]") {
  for_each_device(2, [](auto& device) {
    for (std::size_t count : {0u, 40u}) {
      const StepState state = run(device, Array<float>(count, 0), 1);
      CHECK(state.gradient_norm == 0);
      CHECK(state.clip_scale == 1);
    }
  });
}

TEST_CASE("global_norm: squares beyond the range of float", "[global_norm][gpu]") {
  for_each_device(1, [](auto& device) {
    for (float size : {1e30f, 1e-30f}) {
      const StepState state = run(device, Array<float>(100, size), 1);
      CHECK_FALSE(!(std::abs(state.gradient_norm / (10 * static_cast<double>(size)) - 1) <= 1e-14));
      CHECK_FALSE(!(std::abs(state.clip_scale - std::min(1.0, 1 / state.gradient_norm)) <= 1e-14 * state.clip_scale));
    }
  });
}

TEST_CASE("global_norm: gradients in double", "[global_norm]") {
  CpuDevice<Isa::baseline> device(1);
  const StepState state = run(device, Array<double>{3e100, 4e100}, 1);
  CHECK_FALSE(!(std::abs(state.gradient_norm / 5e100 - 1) <= 1e-15));
}

// Sizes below one access, one block and one part, and sizes of several of each with a rest.
TEST_CASE("global_norm: GPU kernels at every size", "[global_norm][gpu]") {
  for_each_gpu([](auto& device, const std::string& name) {
    for (Index count : {0, 1, 3, 5, 1023, 4096, 4097, 3 * 4096 + 1029}) {
      INFO(name << ", " << count << " elements");
      const Array<float> gradient = gradient_of(count);
      const double norm = norm_of(gradient);
      const StepState state = run(device, gradient, 0.25);
      record_gradcheck({"global_norm", std::to_string(count) + " elements", "gradient_norm", "norm", name, "float",
                        count > 0 ? std::abs(state.gradient_norm - norm) / norm : state.gradient_norm, 1e-13});
      CHECK_FALSE(!(std::abs(state.clip_scale - std::min(1.0, 0.25 / norm)) <= 1e-13));

      for (int order : {1, 2}) {
        set_thread_order(order);
        CHECK(run(device, gradient, 0.25).gradient_norm == state.gradient_norm);
      }
      set_thread_order(0);
      CHECK(run_as<bf16>(device, gradient, 0.25).gradient_norm == state.gradient_norm);
      for (Index begin : {1, 2}) {  // where numbers are not aligned, the order of their sum is the same
        Array<float> moved(static_cast<std::size_t>(begin), std::numeric_limits<float>::quiet_NaN());
        moved.insert(moved.end(), gradient.begin(), gradient.end());
        CHECK(run_as<float>(device, moved, 0.25, begin).gradient_norm == state.gradient_norm);
      }
    }
  });
}

TEST_CASE("global_norm: on the GPU with parts larger than the minimum", "[global_norm][gpu][slow]") {
  for_each_gpu([](auto& device, const std::string& name) {
    INFO(name);
    Array<float> gradient(2048 * 4096 + 4099);
    for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] = static_cast<float>(i % 1021) - 300.0f;
    const double norm = norm_of(gradient);
    CHECK_FALSE(!(std::abs(run(device, gradient, 1).gradient_norm - norm) <= 1e-13 * norm));
  });
}

TEST_CASE("global_norm: NaN and infinity in the gradient are reported", "[global_norm][gpu]") {
  for_each_device(1, [](auto& device) {
    for (std::size_t position : {0u, 20u, 36u}) {
      for (double clip : {0.0, 1.0}) {
        INFO("position " << position << ", clip " << clip);
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
