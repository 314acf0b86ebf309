// How exact the rounds of Muon are in each type: gradients of low rank show it, random ones do not. The table of
// docs/layers/muon.md is `GRADCHECK=1 build/tests "[muon_precision]"`.

#include "layers/muon.hpp"
#include "tests/model_case.hpp"
#include "tests/optimizer_case.hpp"
#include "tests/settings.hpp"

namespace abh {
namespace {

// The first step on a gradient (O, I), for a learning rate of 1: what becomes of weights of 0.
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

// A sum of `rank` products of a random column and a random row; normal numbers where that is the full rank.
Array<double> gradient_of_rank(Index rank, Index O, Index I) {
  if (rank == std::min(O, I)) return numbers(O * I, 2);
  const Array<double> column = numbers(O * rank, 3), row = numbers(rank * I, 4);
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

struct Case {
  Index rank, O, I;
  double bf16_error;  // on the emulator, as the chapter prints it for 64 x 64
};

TEST_CASE("muon: bf16 rounds make noise of a gradient of low rank, float does not", "[muon][muon_precision][gpu]") {
  for (const Case& c : {Case{1, 64, 64, 1.11},
                        {4, 64, 64, 0.51},
                        {16, 64, 64, 0.22},
                        {64, 64, 64, 0.016},
                        {2, 40, 96, 1},
                        {2, 96, 40, 1}}) {
    const std::string what = "rank " + std::to_string(c.rank) + " of " + std::to_string(c.O) + " x " + std::to_string(c.I);
    const Array<double> gradient = gradient_of_rank(c.rank, c.O, c.I);
    const auto record = [&](const std::string& name, const std::string& type, double error, double tolerance) {
      record_gradcheck({"muon", "1 step, gradient of " + what, "weight", "update", name, type, error, tolerance});
    };
    for_each_cpu(1, [&](auto& device, const std::string& name) {
      record(name, "float", step_error<float>(device, gradient, c.O, c.I), 1e-4);
    });
    const auto check = [&](auto& device, const std::string& name) {
      record(name, "float", step_error<float>(device, gradient, c.O, c.I), 1e-4);
      const double error = step_error<bf16>(device, gradient, c.O, c.I);
      record(name, "bf16", error, 1.2 * c.bf16_error);
    };
    for_each_gpu(check, true);
  }
}

}  // namespace
}  // namespace abh
