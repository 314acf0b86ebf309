#include "layers/adamw.hpp"
#include "tests/harness/optimizer_case.hpp"

namespace abh {
namespace {

// Weights as in a training run, with a full-precision copy if T is narrow. The first `begin` weights belong to another
// tensor.
template <class T>
struct Tensor {
  static constexpr bool has_master = !std::is_same_v<T, Accum<T>>;

  Array<T> weight;
  Array<Accum<T>> master, first_moment, second_moment;
  Index begin;

  explicit Tensor(const Array<Accum<T>>& start, Index first = 0)
      : weight(start.begin(), start.end()),
        master(has_master ? start : Array<Accum<T>>()),
        first_moment(start.size(), Accum<T>(0)),
        second_moment(first_moment),
        begin(first) {}

  template <class Device>
  void update(Device& device, const Array<Accum<T>>& d_weight, const AdamwSettings& settings, const StepState& state) {
    const Array<StepState> state_on_device(1, state);
    adamw_update<Device, T>(device, {.weight = weight.data() + begin,
                                     .master = has_master ? master.data() + begin : nullptr,
                                     .first_moment = first_moment.data() + begin,
                                     .second_moment = second_moment.data() + begin,
                                     .d_weight = d_weight.data() + begin,
                                     .settings = settings,
                                     .state = state_on_device.data(),
                                     .count = static_cast<Index>(weight.size()) - begin});
    wait_for(device);
  }
  Values<Accum<T>> tensors() const {
    return {Array<Accum<T>>(weight.begin(), weight.end()), first_moment, second_moment};
  }
  bool operator==(const Tensor&) const = default;
};

StepState state_of(std::uint32_t step, const AdamwSettings& settings, float learning_rate, double clip_scale = 1) {
  StepState state = abh::state_of(learning_rate, clip_scale);
  state.step = step;
  set_adamw_corrections(state, settings);
  return state;
}

// Fifteen steps with learning rate and clip scale changing, as a training run has them.
template <class T, class Device>
Tensor<T> run(Device& device, Index count, const AdamwSettings& settings, Index begin = 0) {
  Tensor<T> tensor(numbers_as<Accum<T>>(count, 1), begin);
  for (std::uint32_t step = 0; step < 15; ++step) {
    tensor.update(device, numbers_as<Accum<T>>(count, 2 + step, step == 7 ? 1e-3 : 3), settings,
                  state_of(step, settings, 0.25f / (1.0f + static_cast<float>(step)), step % 2 ? 0.125 : 1));
  }
  return tensor;
}

TEST_CASE("adamw: matches the published algorithm", "[adamw]") {
  const AdamwSettings settings{.beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-3, .weight_decay = 0.3};
  const Index count = 37;
  CpuDevice<Isa::baseline> device(1);
  const Tensor<double> got = run<double>(device, count, settings);

  // Straight from the paper: corrections by repeated products, decay as a factor on the weight.
  for (Index i = 0; i < count; ++i) {
    const std::size_t at = static_cast<std::size_t>(i);
    double weight = numbers(count, 1)[at], m = 0, v = 0, beta1_power = 1, beta2_power = 1;
    for (std::uint32_t step = 0; step < 15; ++step) {
      const double gradient = (step % 2 ? 0.125 : 1) * numbers(count, 2 + step, step == 7 ? 1e-3 : 3)[at];
      const double learning_rate = 0.25f / (1.0f + static_cast<float>(step));
      beta1_power *= settings.beta1;
      beta2_power *= settings.beta2;
      m = settings.beta1 * m + (1 - settings.beta1) * gradient;
      v = settings.beta2 * v + (1 - settings.beta2) * gradient * gradient;
      weight *= 1 - learning_rate * settings.weight_decay;
      weight -= learning_rate * (m / (1 - beta1_power)) / (std::sqrt(v / (1 - beta2_power)) + settings.epsilon);
    }
    CHECK_FALSE(!(std::abs(got.weight[at] - weight) <= 1e-13));
    CHECK_FALSE(!(std::abs(got.first_moment[at] - m) <= 1e-14));
    CHECK_FALSE(!(std::abs(got.second_moment[at] - v) <= 1e-14 * (1 + v)));
  }
}

// Every number that the chapter prints, as far as it leaves the layer.
TEST_CASE("adamw: the worked example of the chapter", "[adamw]") {
  struct Step {
    double d_weight, clip_scale, first_moment, second_moment, mean, square, weight;
  };
  const Step steps[] = {{4, 0.5, 0.8, 1, 2, 4, 1.25}, {-5, 1, -1.52, 7, -2.375, 16, 1.390625}};
  const AdamwSettings settings{.beta1 = 0.6, .beta2 = 0.75, .weight_decay = 0.25};
  on_plain_and_cpu([&](auto& device) {
    const auto require_near = [](double got, double wanted) { CHECK_FALSE(!(std::abs(got - wanted) <= 1e-7)); };
    Tensor<double> tensor({2});
    for (std::uint32_t step = 0; step < 2; ++step) {
      const Step& wanted = steps[step];
      INFO("step " << step);
      const StepState state = state_of(step, settings, 0.5f, wanted.clip_scale);
      tensor.update(device, {wanted.d_weight}, settings, state);
      require_near(tensor.first_moment[0], wanted.first_moment);
      require_near(tensor.second_moment[0], wanted.second_moment);
      require_near(tensor.first_moment[0] * state.first_moment_correction, wanted.mean);
      require_near(tensor.second_moment[0] * state.second_moment_correction, wanted.square);
      require_near(tensor.weight[0], wanted.weight);
    }
  });
}

std::vector<TensorSpec> slots_of(Index count) {
  return {activation("weight", {count}), activation("first_moment", {count}), activation("second_moment", {count})};
}

TEST_CASE("adamw: float against double in every instruction set, with any number of threads", "[adamw]") {
  const Index count = 2 * 8192 + 29;
  check_update_on_cpus(slots_of(count), 1e-5,
                       [&]<class T>(auto& device) { return run<T>(device, count, {.weight_decay = 0.1}); });
}

TEST_CASE("adamw: bias corrections of the moments", "[adamw]") {
  const AdamwSettings settings;
  StepState state = state_of(0, settings, 1);
  CHECK_FALSE(!(std::abs(state.first_moment_correction - 10) <= 1e-13));
  CHECK_FALSE(!(std::abs(state.second_moment_correction - 100) <= 1e-11));
  state = state_of(1, settings, 1);
  CHECK_FALSE(!(std::abs(state.first_moment_correction - 1 / 0.19) <= 1e-13));
  state = state_of(4000000000u, settings, 1);
  CHECK(state.first_moment_correction == 1);
  CHECK(state.second_moment_correction == 1);
}

// A step of a half from weights of 1.
void check_first_step(const Array<float>& d_weight, const Array<float>& expected, float tolerance) {
  const AdamwSettings settings{.epsilon = 1e-8};
  for_each_device(1, [&](auto& device) {
    Tensor<float> tensor(Array<float>(d_weight.size(), 1));
    tensor.update(device, d_weight, settings, state_of(0, settings, 0.5f));
    CHECK_FALSE(!(distance(tensor.weight, expected) <= tolerance));
  });
}

TEST_CASE("adamw: the first step has the sign of the gradient, for any gradient size", "[adamw][gpu]") {
  check_first_step({1e-4f, -1e-4f, 1, -30, 1e6f}, {0.5f, 1.5f, 0.5f, 1.5f, 0.5f}, 1e-4f);
}

// Epsilon is added to the root, not under it: the first step of a gradient as large as epsilon is half a step.
TEST_CASE("adamw: gradients as small as epsilon", "[adamw][gpu]") {
  check_first_step({1e-8f, -1e-8f, 3e-8f, 1e-9f, -1e-10f}, {0.75f, 1.25f, 0.625f, 1 - 0.5f / 11, 1 + 0.5f / 101},
                   1e-6f);
}

TEST_CASE("adamw: complements of the betas are computed in double", "[adamw][gpu]") {
  const AdamwSettings settings{.beta1 = 0.9, .beta2 = 0.999};
  for_each_device(1, [&](auto& device) {
    const std::size_t count = 2 * 8192 + 5;  // several tasks
    Tensor<float> tensor(Array<float>(count, 1));
    tensor.update(device, Array<float>(count, 1), settings, state_of(0, settings, 0.5f));
    CHECK(tensor.first_moment == Array<float>(count, static_cast<float>(1 - settings.beta1)));
    CHECK(tensor.second_moment == Array<float>(count, static_cast<float>(1 - settings.beta2)));
  });
}

TEST_CASE("adamw: a zero gradient moves a weight only by weight decay", "[adamw][gpu]") {
  for_each_device(1, [](auto& device) {
    const Array<float> start = numbers_as<float>(21, 5);
    AdamwSettings settings;
    Tensor<float> resting(start);
    for (std::uint32_t step = 0; step < 3; ++step)
      resting.update(device, Array<float>(21, 0), settings, state_of(step, settings, 0.5f));
    CHECK(resting == Tensor<float>(start));

    settings.weight_decay = 0.5;
    Tensor<float> decaying(start);
    for (std::uint32_t step = 0; step < 2; ++step)
      decaying.update(device, Array<float>(21, 0), settings, state_of(step, settings, 0.5f));
    for (std::size_t i = 0; i < start.size(); ++i) {
      CHECK_FALSE(!(std::abs(decaying.weight[i] - 0.5625f * start[i]) <= 1e-6f * std::abs(start[i])));
    }
    CHECK(decaying.first_moment == Array<float>(21, 0));  // decay is no part of the gradient
  });
}

TEST_CASE("adamw: a clip scale of NaN changes nothing", "[adamw][gpu]") {
  const AdamwSettings settings{.weight_decay = 0.1};
  in_every_type([&]<class T>(auto& device, T) {
    Tensor<T> tensor = run<T>(device, 19, settings);
    if (!tensor.master.empty()) tensor.master[3] += 1;  // differs from its full-precision copy, so a rewrite shows
    const Tensor<T> before = tensor;
    tensor.update(device, Array<float>(19, 1), settings,
                  state_of(15, settings, 0.5f, std::numeric_limits<double>::quiet_NaN()));
    CHECK(tensor == before);
  });
}

TEST_CASE("adamw: no weights", "[adamw][gpu]") {
  const AdamwSettings settings;
  for_each_device(1, [&](auto& device) {
    Tensor<float> tensor({});
    tensor.update(device, {}, settings, state_of(0, settings, 0.5f));
    CHECK(tensor.weight.empty());
  });
}

// Aligned and not, less than an access and more than a block.
TEST_CASE("adamw: GPU kernels against double", "[adamw][gpu]") {
  for_each_gpu([&](auto& device, const std::string& name) {
    for (const auto& range : {std::pair<Index, Index>{1, 0}, {3, 0}, {37, 1}, {2077, 0}, {2077, 3}}) {
      const Index count = range.first, begin = range.second;
      INFO(name << ", " << count << " weights, the first " << begin << " left alone");
      const auto steps = [&]<class T>(auto& any) { return run<T>(any, count, {.weight_decay = 0.1}, begin); };
      GradcheckRow row{"adamw", "15 steps, " + std::to_string(count) + " weights", "weight", "update", name, "float", 0,
                       1e-5};
      const auto [got, narrow] = check_update_on_gpu(device, row, slots_of(count), steps);

      // bf16: the state equals that of float, and the weights are its rounded copy.
      row.type = "bf16";
      row.error = error_in_norm(converted<double>(Values<bf16>{narrow.weight})[0], reference_of(steps).weight, 0);
      row.tolerance = 2e-2;
      record_gradcheck(row);
      CHECK(narrow.master == got.weight);
      CHECK(narrow.first_moment == got.first_moment);
      CHECK(narrow.second_moment == got.second_moment);
    }
  });
}

// 1 - beta must not be formed in float: 1 - 0.9999f is off by a six-thousandth.
TEST_CASE("adamw: on the GPU with betas near 1", "[adamw][gpu]") {
  const AdamwSettings settings{.beta1 = 0.9999, .beta2 = 0.9999};
  const Index count = 37;
  PlainDevice reference_device;
  const Tensor<double> reference = run<double>(reference_device, count, settings);
  for_each_gpu([&](auto& device, const std::string& name) {
    const Tensor<float> got = run<float>(device, count, settings);
    require_close({activation("first_moment", {count}), activation("second_moment", {count})},
                  converted<double>(Values<float>{got.first_moment, got.second_moment}),
                  {reference.first_moment, reference.second_moment}, 1e-5, name);
  });
}

TEST_CASE("adamw: on the GPU with each array in turn misaligned", "[adamw][gpu]") {
  for_each_gpu_type([]<class T>(auto& device, T) {
    Tensor<T> expected(Array<float>(9, 1));
    for_each_shifted_array(sizeof(T), [&](const std::string& what) {
      Tensor<T> tensor(Array<float>(9, 1));
      tensor.update(device, Array<float>(9, -1), {}, state_of(0, {}, 0.5f));
      if (what.empty()) expected = tensor;
      CHECK(float(tensor.weight[8]) == 1.5f);
      CHECK(tensor == expected);
    });
  });
}

// More tensors than one launch takes, some misaligned, each with its own weight decay.
TEST_CASE("adamw: several tensors in one update equal separate updates", "[adamw][gpu]") {
  in_every_type([]<class Device, class T>(Device& device, T) {
    const AdamwSettings settings{};
    const Array<StepState> state(1, state_of(3, settings, 0.25f, 0.5));
    std::vector<Index> counts = {1, 4096, 3, 1023, 40};
    for (Index i = 0; i < 35; ++i) counts.push_back(i % 7 + 1);
    Index count = 0;
    for (const Index n : counts) count += n;
    const Array<Accum<T>> d_weight = numbers_as<Accum<T>>(count, 2);
    const auto updated = [&](bool at_once) {
      Tensor<T> all(numbers_as<Accum<T>>(count, 1));
      std::vector<AdamwUpdate<T>> updates;
      Index begin = 0;
      for (const Index n : counts) {
        updates.push_back({.weight = all.weight.data() + begin,
                           .master = all.has_master ? all.master.data() + begin : nullptr,
                           .first_moment = all.first_moment.data() + begin,
                           .second_moment = all.second_moment.data() + begin,
                           .d_weight = d_weight.data() + begin,
                           .settings = {.weight_decay = 0.1 * static_cast<double>(n % 3)},
                           .state = state.data(),
                           .count = n});
        begin += n;
      }
      if (at_once) {
        adamw_updates<Device, T>(device, updates);
      } else {
        for (const AdamwUpdate<T>& update : updates) adamw_update<Device, T>(device, update);
      }
      wait_for(device);
      return all;
    };
    const Tensor<T> at_once = updated(true);
    CHECK((at_once == updated(false)));
    Index same = 0;
    for (const Accum<T> moment : at_once.first_moment) same += moment == 0;
    CHECK(same == 0);
  });
}

TEST_CASE("adamw: bf16 weights accumulate steps below their rounding", "[adamw][gpu]") {
  const AdamwSettings settings;
  for_each_gpu([&](auto& device, const std::string& name) {
    INFO(name);
    Tensor<bf16> tensor(Array<float>(5, 1));
    for (std::uint32_t step = 0; step < 64; ++step) {
      tensor.update(device, Array<float>(5, -1), settings, state_of(step, settings, 0x1p-12f));
      if (step == 0) CHECK(float(tensor.weight[4]) == 1);  // the next bf16 is 1 + 2^-7
    }
    for (bf16 x : tensor.weight) CHECK(float(x) == 1 + 0x1p-6f);
  });
}

TEST_CASE("adamw: reaches the minimum of a quadratic of condition number 1e4", "[adamw]") {
  // f(w) = 1/2 sum_i h_i (w_i - a_i)^2 with h from 0.01 to 100. Steps are at most about the learning rate long, so the
  // distance of 2 takes at least 40 steps of 0.05; a cosine to 0 then brings the error far below one step.
  const AdamwSettings settings;
  const Array<double> curvature = {0.01, 1, 100}, minimum = {2, -1, 0.5};
  CpuDevice<Isa::baseline> device(1);
  Tensor<double> tensor({0, 0, 0});
  const std::uint32_t steps = 400;
  for (std::uint32_t step = 0; step < steps; ++step) {
    Array<double> d_weight;
    for (std::size_t i = 0; i < 3; ++i) d_weight.push_back(curvature[i] * (tensor.weight[i] - minimum[i]));
    const double done = static_cast<double>(step) / steps;
    const double learning_rate = 0.05 * 0.5 * (1 + std::cos(3.141592653589793 * done));
    tensor.update(device, d_weight, settings, state_of(step, settings, static_cast<float>(learning_rate)));
    if (step == 19) CHECK(std::abs(tensor.weight[0] - 2) > 0.9);
  }
  CHECK_FALSE(!(distance(tensor.weight, minimum) <= 1e-3));
}

}  // namespace
}  // namespace abh
