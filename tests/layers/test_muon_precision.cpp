// The error of Muon's rounds in each type, on gradients of low rank, since full rank hides it. `GRADCHECK=1 build/tests
// "[muon_precision]"` prints the figures of docs/layers/muon.md.

#include <cstdio>

#include "base/random.hpp"
#include "layers/muon.hpp"
#include "tests/harness/folder.hpp"
#include "tests/harness/model_case.hpp"
#include "tests/harness/optimizer_case.hpp"
#include "tests/harness/settings.hpp"

namespace abh {
namespace {

// The first step on a gradient (O, I) with learning rate 1, from weights of 0.
template <class T, class Device>
Array<double> step_of(Device& device, const Array<double>& gradient, Index O, Index I) {
  constexpr bool has_master = !std::is_same_v<T, Accum<T>>;
  const Array<Accum<T>> d_weight = converted<Accum<T>>(Values<double>{gradient})[0];
  Array<T> weight(gradient.size(), T(0));
  Array<Accum<T>> master(has_master ? gradient.size() : 0), first_moment(gradient.size(), 0);
  const Array<Index> offset(1, 0);
  const Array<StepState> state(1, state_of(1));
  muon_update<Device, T>(device, {.weight = weight.data(),
                                  .master = has_master ? master.data() : nullptr,
                                  .first_moment = first_moment.data(),
                                  .d_weight = d_weight.data(),
                                  .offset_m = offset.data(),
                                  .matrices = 1,
                                  .O = O,
                                  .I = I,
                                  .settings = {},
                                  .state = state.data()});
  wait_for(device);
  if constexpr (has_master) return converted<double>(Values<Accum<T>>{master})[0];
  return Array<double>(weight.begin(), weight.end());
}

// Its distance from the step in double, in lengths of that step.
template <class T, class Device>
double step_error(Device& device, const Array<double>& gradient, Index O, Index I) {
  CpuDevice<Isa::baseline> reference(1);
  return error_in_norm(step_of<T>(device, gradient, O, I), step_of<double>(reference, gradient, O, I), 0);
}

// A sum of `rank` products of a random column and a random row.
Array<double> gradient_of_rank(Index rank, Index O, Index I) {
  const Array<double> column = numbers(O * rank, 9), row = numbers(rank * I, 10);
  Array<double> gradient;
  for (Index o = 0; o < O; ++o) {
    for (Index i = 0; i < I; ++i) {
      double sum = 0;
      for (Index r = 0; r < rank; ++r) {
        sum += column[static_cast<std::size_t>(o * rank + r)] * row[static_cast<std::size_t>(r * I + i)];
      }
      gradient.push_back(sum);
    }
  }
  return gradient;
}

// "1.6 %", to two digits. A build without a GPU device, real or emulated, does not use it.
[[maybe_unused]] std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, share < 0.0995 ? "%.1f %%" : "%.0f %%", 100 * share);
  return text;
}

// The chapter has the figures of the emulator with the products of this project.
[[maybe_unused]] void check_row(const std::string& row) {
  INFO(row);
  CHECK(read_bytes(ABH_SOURCE_DIR "/docs/layers/muon.md").find(row) != std::string::npos);
}

TEST_CASE("muon: bf16 rounds add noise to a low-rank gradient, float rounds do not", "[muon][muon_precision][gpu]") {
  const Index O = GENERATE(64, 40, 96), I = O == 64 ? 64 : 136 - O;  // 64 x 64, 40 x 96, 96 x 40
  const std::vector<std::pair<Index, double>> bounds = {{1, 1.2}, {4, 0.55}, {16, 0.25}, {std::min(O, I), 0.05}};
  const double float_bound = 1e-4;
  const auto record = [&](Index rank, const std::string& name, const std::string& type, double error, double bound) {
    const std::string what = std::to_string(rank) + ", " + std::to_string(O) + " x " + std::to_string(I);
    record_gradcheck({"muon", "1 step, gradient of rank " + what, "weight", "update", name, type, error, bound});
    return error;
  };
  for_each_cpu(1, [&](auto& device, const std::string& name) {
    for (const auto& [rank, bound] : bounds) {
      record(rank, name, "float", step_error<float>(device, gradient_of_rank(rank, O, I), O, I), float_bound);
    }
  });
  const auto check = [&](auto& device, const std::string& name) {
    std::string row = "| bf16 |";
    for (const auto& [rank, bound] : bounds) {
      const Array<double> gradient = gradient_of_rank(rank, O, I);
      record(rank, name, "float", step_error<float>(device, gradient, O, I), float_bound);
      row += " " + percent(record(rank, name, "bf16", step_error<bf16>(device, gradient, O, I), bound)) + " |";
    }
    if (name == "emulated" && O == I) check_row(row);
  };
  for_each_gpu(check, true);
}

// A batch of few tokens gives a gradient of low rank.
TEST_CASE("muon: bf16 rounds on a network's first gradients", "[muon][muon_precision][gpu]") {
  const ModelConfig config =
      model_with("layers=2 channels=64 heads=4 context=32 vocabulary_size=65 mixer=dot conv_kernel=4 conv_groups=0");
  TrainingConfig training;
  const auto errors_of = [&](auto& device, const std::string& name) {
    const Index C = config.context, B = training.batch;
    std::vector<Token> tokens;
    for (std::uint64_t i = 0; i <= static_cast<std::uint64_t>(B * C); ++i) {
      tokens.push_back(static_cast<Token>(philox_word(1, i, 0, 900) % 65));
    }
    std::vector<Token> targets(tokens.begin() + 1, tokens.end());
    tokens.pop_back();
    const auto model = new_model({.device = "plain", .threads = 1}, config, training, training.init_std);
    const std::vector<float> gradients = model->gradient(batch_of_sequences(C, tokens, targets));
    std::vector<double> errors;
    for (const Parameter& p : parameter_table(config)) {
      if (p.kind != Kind::linear) continue;
      const auto begin = gradients.begin() + p.offset;
      const Array<double> gradient(begin, begin + p.count);
      errors.push_back(step_error<bf16>(device, gradient, p.shape[0], p.shape[1]));
      const std::string what = "1 step, first gradient of " + std::to_string(B * C) + " tokens";
      const double bound = 10 / static_cast<double>(B * C);
      record_gradcheck({"muon", what, p.name, "update", name, "bf16", errors.back(), bound});
    }
    std::sort(errors.begin(), errors.end());
    return errors;
  };
  const auto check = [&](auto& device, const std::string& name) {
    std::string median = "| median |", largest = "| largest |";
    for (const Index batch : {1, 2, 4}) {
      training.batch = batch;
      const std::vector<double> errors = errors_of(device, name);
      median += " " + percent((errors[errors.size() / 2 - 1] + errors[errors.size() / 2]) / 2) + " |";
      largest += " " + percent(errors.back()) + " |";
    }
    if (name == "emulated") check_row(median), check_row(largest);
  };
  for_each_gpu(check, true);
}

}  // namespace
}  // namespace abh
