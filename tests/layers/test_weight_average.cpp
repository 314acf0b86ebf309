#include <cmath>
#include <limits>

#include "layers/weight_average.hpp"
#include "tests/harness/optimizer_case.hpp"

namespace abh {
namespace {

// Average of weights of type T. The first and the last `margin` weights belong to other tensors.
template <class T>
struct Averaged {
  Array<Accum<T>> average;
  Index margin = 0;

  template <class Device>
  void update(Device& device, const Array<Accum<T>>& weight, const StepState& state) {
    const Array<StepState> state_on_device(1, state);
    weight_average_update<Device, T>(device, average.data() + margin, weight.data() + margin, state_on_device.data(),
                                     static_cast<Index>(average.size()) - 2 * margin);
    wait_for(device);
  }
  Values<Accum<T>> tensors() const { return {average}; }
  bool operator==(const Averaged&) const = default;
};

StepState state_of(std::uint32_t step, Index N, double clip_scale = 1) {
  StepState state = abh::state_of(0, clip_scale);
  state.step = step;
  set_average_share(state, N);
  return state;
}

template <class T>
Array<T> weights_of(Index count, Index step) {
  return numbers_as<T>(count, static_cast<std::uint64_t>(step) + 2);
}

// Runs this number of steps, each with other weights.
template <class T, class Device>
Averaged<T> run(Device& device, Index count, Index N, Index steps, Index margin = 0) {
  Averaged<T> averaged{numbers_as<Accum<T>>(count, 1), margin};
  for (Index step = 0; step < steps; ++step) {
    averaged.update(device, weights_of<Accum<T>>(count, step), state_of(static_cast<std::uint32_t>(step), N));
  }
  return averaged;
}

// A sum over all steps, with the weights that the chapter derives.
TEST_CASE("weight_average: plain mean of up to N steps, then exponential mean", "[weight_average]") {
  const Index count = 37, N = GENERATE(1, 2, 7, 1000), steps = GENERATE(1, 2, 7, 8, 30);
  CAPTURE(N, steps);
  Array<double> expected(static_cast<std::size_t>(count));
  double sum_of_shares = 0;
  for (Index step = 0; step < steps; ++step) {
    const double n = static_cast<double>(std::min(steps, N));
    const double share = std::pow(1 - 1 / n, std::max(Index{0}, steps - std::max(step + 1, N))) / n;
    const Array<double> weight = weights_of<double>(count, step);
    for (std::size_t i = 0; i < weight.size(); ++i) expected[i] += share * weight[i];
    sum_of_shares += share;
  }
  CHECK_FALSE(!(std::abs(sum_of_shares - 1) <= 1e-14));
  on_plain_and_cpu(
      [&](auto& device) { CHECK_FALSE(!(distance(run<double>(device, count, N, steps).average, expected) <= 1e-14)); });
}

// Every number that the chapter prints.
TEST_CASE("weight_average: the worked example of the chapter", "[weight_average]") {
  struct Step {
    double weight, share, average;
  };
  const Step steps[] = {{6, 1, 6}, {3, 0.5, 4.5}, {9, 1.0 / 3, 6}, {3, 1.0 / 3, 5}, {8, 1.0 / 3, 6}};
  on_plain_and_cpu([&](auto& device) {
    Averaged<double> averaged{{10}};
    for (std::uint32_t step = 0; step < std::size(steps); ++step) {
      INFO("step " << step);
      const StepState state = state_of(step, 3);
      CHECK(state.average_share == steps[step].share);
      averaged.update(device, {steps[step].weight}, state);
      CHECK_FALSE(!(std::abs(averaged.average[0] - steps[step].average) <= 1e-14));
    }
  });
}

TEST_CASE("weight_average: the share of each step", "[weight_average]") {
  CHECK(state_of(0, 1000).average_share == 1);
  CHECK(state_of(999, 1).average_share == 1);
  CHECK(state_of(3, 4).average_share == 0.25);
  CHECK(state_of(4, 4).average_share == 0.25);
  CHECK(state_of(4294967295u, Index{1} << 40).average_share == 0x1p-32);
}

TEST_CASE("weight_average: float against double in every instruction set, with any number of threads",
          "[weight_average]") {
  for (const Index count : {1, 3, 7, 31, 2 * 16384 + 29}) {
    check_update_on_cpus({activation("average", {count})}, 1e-6,
                         [&]<class T>(auto& device) { return run<T>(device, count, 5, 9); });
  }
}

// A sum would be rounded, and would keep NaN and infinity.
TEST_CASE("weight_average: a share of 1 gives the bits of the weight", "[weight_average][gpu]") {
  const float infinity = std::numeric_limits<float>::infinity();
  for_each_device(1, [&](auto& device) {
    Averaged<float> averaged{{1, -3, 1e30f, infinity, std::nanf(""), 0.1f, 7, 7, 7}};
    const Array<float> weight = {1e-10f, 0.1f, -1e-30f, 2, 3, 1e10f, 1e-20f, -0.7f, 0};
    averaged.update(device, weight, state_of(0, 1000));
    CHECK(averaged.average == weight);
    averaged.update(device, {2, 2, 2, 2, 2, 2, 2, 2, 2}, state_of(1, 1));
    CHECK(averaged.average == Array<float>(9, 2));
  });
}

TEST_CASE("weight_average: constant weights equal their average bit for bit", "[weight_average][gpu]") {
  const Array<float> weight = numbers_as<float>(21, 5);
  for_each_device(1, [&](auto& device) {
    Averaged<float> averaged{Array<float>(21, 0)};
    for (std::uint32_t step = 0; step < 20; ++step) averaged.update(device, weight, state_of(step, 7));
    CHECK(averaged.average == weight);
  });
}

TEST_CASE("weight_average: a clip scale of NaN changes nothing", "[weight_average][gpu]") {
  in_every_type([]<class T>(auto& device, T) {
    for (const Index N : {1, 5}) {
      Averaged<T> averaged = run<T>(device, 19, N, 4);
      const Averaged<T> before = averaged;
      averaged.update(device, Array<float>(19, 1), state_of(4, N, std::numeric_limits<double>::quiet_NaN()));
      CHECK(averaged == before);
      averaged.update(device, Array<float>(19, 1), state_of(4, N, 0.5));
      CHECK_FALSE(averaged == before);
    }
  });
}

TEST_CASE("weight_average: no weights", "[weight_average][gpu]") {
  for_each_device(1, [](auto& device) {
    Averaged<float> averaged;
    averaged.update(device, {}, state_of(3, 2));
    CHECK(averaged.average.empty());
  });
}

// Aligned and not, less than an access and more than a block.
TEST_CASE("weight_average: GPU kernels at every size", "[weight_average][gpu]") {
  for_each_gpu([](auto& device, const std::string& name) {
    for (const auto& range : {std::pair<Index, Index>{1, 0}, {3, 0}, {37, 1}, {2077, 3}, {2077, 4}}) {
      const Index count = range.first, margin = range.second;
      INFO(name << ", " << count << " weights, " << margin << " on either side left alone");
      const auto steps = [=]<class T>(auto& any) { return run<T>(any, count, 5, 9, margin); };
      const auto got = run_in_three_orders([&] { return steps.template operator()<float>(device); });
      const std::vector<TensorSpec> specs = {activation("average", {count})};
      for (const Comparison& comparison :
           compare(specs, converted<double>(got.tensors()), reference_of(steps).tensors(), true)) {
        record_gradcheck({"weight_average", "9 steps, " + std::to_string(count) + " weights", comparison.name, "update",
                          name, "float", comparison.error, 1e-6});
      }
      // With weights in bf16, the average is that of the full-precision weights.
      CHECK(steps.template operator()<bf16>(device).average == got.average);
    }
  });
}

TEST_CASE("weight_average: on the GPU with each array in turn misaligned", "[weight_average][gpu]") {
  for_each_gpu([](auto& device, const std::string& name) {
    INFO(name);
    for_each_shifted_array(sizeof(float), [&](const std::string&) {
      Averaged<float> averaged{Array<float>(9, 1)};
      averaged.update(device, Array<float>(9, -1), state_of(7, 4));
      CHECK(averaged.average == Array<float>(9, 0.5f));
    });
  });
}

}  // namespace
}  // namespace abh
