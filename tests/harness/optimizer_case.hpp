#pragma once

// Tests of optimizers. run.operator()<T>(device) returns the tensors after some steps as an Update: weight, master
// (empty if T is not narrow) and tensors(), which has all of them except the master, weight first.

#include "tests/harness/layer_case.hpp"
#include "tests/harness/near.hpp"
#include "tests/harness/plain_and_cpu.hpp"

namespace abh {

inline Array<double> numbers(Index count, std::uint64_t seed, double scale = 1) {
  return random_values(activation("numbers", {count}, scale), seed, 0);
}

template <class T>
Array<T> numbers_as(Index count, std::uint64_t seed, double scale = 1) {
  return converted<T>(Values<double>{numbers(count, seed, scale)})[0];
}

inline StepState state_of(float learning_rate, double clip_scale = 1) {
  StepState state;
  state.learning_rate = learning_rate;
  state.clip_scale = clip_scale;
  return state;
}

// check(device, T()) for T float and bf16 on every GPU.
template <class Check>
void for_each_gpu_type(const Check& check) {
  for_each_gpu([&](auto& device, const std::string& name) {
    INFO(name);
    check(device, float{});
    check(device, bf16{});
  });
}

// The same on every CPU, too.
template <class Check>
void in_every_type(const Check& check) {
  for_each_cpu(1, [&](auto& device, const std::string& name) {
    INFO(name);
    check(device, float{});
    check(device, bf16{});
  });
  for_each_gpu_type(check);
}

// The plain loops in double, which the others are compared with.
template <class Run>
auto reference_of(const Run& run) {
  PlainDevice plain;
  return run.template operator()<double>(plain);
}

// float on every CPU, the same bits with 1, 2 and 3 threads.
template <class Run>
void check_update_on_cpus(const std::vector<TensorSpec>& specs, double tolerance, const Run& run) {
  const auto reference = reference_of(run);
  for_each_cpu(1, [&]<class Device>(Device& device, const std::string& name) {
    const auto got = run.template operator()<float>(device);
    require_close(specs, converted<double>(got.tensors()), reference.tensors(), tolerance, name);
    with_more_threads(device, [&](Device& another, Index threads) {
      INFO(name << ", " << threads << " threads");
      CHECK(run.template operator()<float>(another) == got);
    });
  });
}

// float on a GPU, in three thread orders, for the table of `make gradcheck`; then bf16, whose weights must be their
// rounded full-precision copies. Returns both.
template <class Run, class Device>
auto check_update_on_gpu(Device& device, const GradcheckRow& row, const std::vector<TensorSpec>& specs,
                         const Run& run) {
  const auto reference = reference_of(run);
  const auto got = run_in_three_orders([&] { return run.template operator()<float>(device); });
  for (const Comparison& comparison : compare(specs, converted<double>(got.tensors()), reference.tensors(), true)) {
    GradcheckRow compared = row;
    compared.tensor = comparison.name;
    compared.error = comparison.error;
    record_gradcheck(compared);
  }
  const auto narrow = run.template operator()<bf16>(device);
  Index not_rounded = 0;
  for (std::size_t i = 0; i < narrow.weight.size(); ++i) {
    not_rounded += float(narrow.weight[i]) != float(bf16(narrow.master[i]));
  }
  CHECK(not_rounded == 0);
  return std::pair{got, narrow};
}

}  // namespace abh
