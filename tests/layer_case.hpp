#pragma once

// How every layer and block is proved. A test describes its layer once, as a Case:
//
//   struct LayernormCase {
//     std::vector<Slot> inputs() const;    // activations and weights that the outputs depend on
//     std::vector<Slot> outputs() const;
//     template <class Device, class T>
//     void forward(Device&, const Values<T>& in, Values<T>& out) const;             // writes every out[i]
//     template <class Device, class T>
//     void backward(Device&, const Values<T>& in, const Values<T>& d_out, Values<T>& d_in) const;
//   };                                                                  // runs its own forward pass for what it saves
//
// in[i], out[i] belong to inputs()[i], outputs()[i]. check_layer(case) then checks, for unit-scale data and a random
// upstream gradient:
//   - backward in double against Dual numbers (1e-12) and central differences (1e-7), for every element of every input;
//   - float in every instruction set of this machine, and width 1, against double (1e-5 forward, 2e-5 backward);
//   - that 1, 2 and 3 threads give the same bits, and so does a second run.
// Backward must overwrite the gradient of an activation (it is handed NaN) and add to that of a weight (handed
// numbers).

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "catch.hpp"
#include "cpu/cpu.hpp"
#include "isa.hpp"
#include "random.hpp"
#include "tests/dual.hpp"
#include "types.hpp"

namespace abh {

struct Slot {
  std::string name;
  Index count;
  bool weight = false;
  double scale = 1;   // standard deviation of the test data
  double offset = 0;  // mean of the test data
};
inline Slot activation(std::string name, Index count, double scale = 1, double offset = 0) {
  return {std::move(name), count, false, scale, offset};
}
inline Slot weight(std::string name, Index count, double scale = 1, double offset = 0) {
  return {std::move(name), count, true, scale, offset};
}

template <class T>
using Values = std::vector<std::vector<T>>;

// Runs body(device) on every CPU device that can compute T = float here: width 1, baseline, and what this machine has.
template <class Body>
void for_each_cpu(Index threads, const Body& body) {
  CpuDevice<Isa::scalar> scalar(threads);
  body(scalar, "scalar");
  CpuDevice<Isa::baseline> baseline(threads);
  body(baseline, "baseline");
#if defined(ABH_X86)
  if (isa_available(Isa::avx2)) {
    CpuDevice<Isa::avx2> avx2(threads);
    body(avx2, "avx2");
  }
  if (isa_available(Isa::avx512)) {
    CpuDevice<Isa::avx512> avx512(threads);
    body(avx512, "avx512");
  }
#endif
}

// Normal random numbers for slot `index` of a case.
inline std::vector<double> random_values(const Slot& slot, std::uint64_t seed, std::uint32_t index) {
  std::vector<double> values(static_cast<std::size_t>(slot.count));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = slot.offset + slot.scale * normal_number(seed, i, index, 1000);
  return values;
}
inline Values<double> random_values(const std::vector<Slot>& slots, std::uint64_t seed) {
  Values<double> values;
  for (const Slot& slot : slots) values.push_back(random_values(slot, seed, static_cast<std::uint32_t>(values.size())));
  return values;
}

template <class To, class From>
Values<To> converted(const Values<From>& values) {
  Values<To> result;
  for (const std::vector<From>& v : values) {
    std::vector<To>& to = result.emplace_back();
    for (const From& x : v) to.push_back(static_cast<To>(x));
  }
  return result;
}

// The comparison rule of the golden files: largest difference over the largest reference value of the tensor, which
// counts as at least 1 % of the largest among all tensors of the kind. NaN fails.
struct Comparison {
  std::string name;
  double error = 0;
};
// The larger of the two, and NaN from the first NaN on.
inline double at_least(double most, double x) { return !(x <= most) && !std::isnan(most) ? x : most; }
inline double largest(const std::vector<double>& values) {
  double most = 0;
  for (double x : values) most = at_least(most, std::abs(x));
  return most;
}
inline std::vector<Comparison> compare(const std::vector<Slot>& slots, const Values<double>& got,
                                       const Values<double>& reference, bool weights_apart) {
  std::vector<Comparison> result;
  for (std::size_t s = 0; s < slots.size(); ++s) {
    double scale = largest(reference[s]);
    for (std::size_t other = 0; other < slots.size(); ++other) {
      if (weights_apart && slots[other].weight != slots[s].weight) continue;
      scale = std::max(scale, 0.01 * largest(reference[other]));
    }
    Comparison comparison{slots[s].name};
    for (std::size_t i = 0; i < got[s].size(); ++i) {
      const double difference = std::abs(got[s][i] - reference[s][i]);
      const double error = difference == 0 ? 0 : difference / scale;
      comparison.error = at_least(comparison.error, error);
    }
    result.push_back(comparison);
  }
  return result;
}
inline void require_close(const std::vector<Slot>& slots, const Values<double>& got, const Values<double>& reference,
                          double tolerance, const std::string& what, bool weights_apart = true) {
  REQUIRE(got.size() == reference.size());
  for (const Comparison& comparison : compare(slots, got, reference, weights_apart)) {
    INFO(what << ", " << comparison.name << ": error " << comparison.error << ", tolerance " << tolerance);
    CHECK_FALSE(!(comparison.error <= tolerance));
  }
}

template <class T, class Device, class Case>
Values<T> run_forward(const Case& layer, Device& device, const Values<T>& in) {
  Values<T> out;
  for (const Slot& slot : layer.outputs()) {
    out.emplace_back(static_cast<std::size_t>(slot.count), static_cast<T>(std::numeric_limits<float>::quiet_NaN()));
  }
  layer.template forward<Device, T>(device, in, out);
  return out;
}

// Gradients as the layer leaves them, less what the weights' gradients held before.
template <class T, class Device, class Case>
Values<double> run_backward(const Case& layer, Device& device, const Values<T>& in, const Values<T>& d_out) {
  const double before = 0.25;
  Values<T> d_in;
  for (const Slot& slot : layer.inputs()) {
    const double fill = slot.weight ? before : std::numeric_limits<double>::quiet_NaN();
    d_in.emplace_back(static_cast<std::size_t>(slot.count), static_cast<T>(fill));
  }
  layer.template backward<Device, T>(device, in, d_out, d_in);
  Values<double> result = converted<double>(d_in);
  const std::vector<Slot> slots = layer.inputs();
  for (std::size_t s = 0; s < slots.size(); ++s) {
    if (!slots[s].weight) continue;
    for (double& x : result[s]) x -= before;
  }
  return result;
}

inline double dot(const Values<double>& a, const Values<double>& b) {
  double sum = 0;
  for (std::size_t s = 0; s < a.size(); ++s) {
    for (std::size_t i = 0; i < a[s].size(); ++i) sum += a[s][i] * b[s][i];
  }
  return sum;
}

// The derivative of dot(outputs, d_out) along one direction of the inputs, by Dual numbers.
template <class Case>
double dual_derivative(const Case& layer, CpuDevice<Isa::scalar>& device, const Values<Dual>& in,
                       const Values<double>& d_out) {
  const Values<Dual> out = run_forward<Dual>(layer, device, in);
  double sum = 0;
  for (std::size_t s = 0; s < out.size(); ++s) {
    for (std::size_t i = 0; i < out[s].size(); ++i) sum += out[s][i].derivative * d_out[s][i];
  }
  return sum;
}

template <class Case>
void check_gradients(const Case& layer, std::uint64_t seed) {
  const Values<double> in = random_values(layer.inputs(), seed);
  const Values<double> d_out = random_values(layer.outputs(), seed + 1);
  CpuDevice<Isa::baseline> device(1);
  CpuDevice<Isa::scalar> dual_device(1);
  const Values<double> gradients = run_backward<double>(layer, device, in, d_out);

  Values<double> by_dual, by_difference;
  Values<Dual> dual_in = converted<Dual>(in);
  Values<double> moved = in;
  for (std::size_t s = 0; s < in.size(); ++s) {
    by_dual.emplace_back();
    by_difference.emplace_back();
    for (std::size_t i = 0; i < in[s].size(); ++i) {
      dual_in[s][i].derivative = 1;
      by_dual[s].push_back(dual_derivative(layer, dual_device, dual_in, d_out));
      dual_in[s][i].derivative = 0;

      const double h = 1e-5;
      moved[s][i] = in[s][i] + h;
      const Values<double> above = run_forward<double>(layer, device, moved);
      moved[s][i] = in[s][i] - h;
      const Values<double> below = run_forward<double>(layer, device, moved);
      moved[s][i] = in[s][i];
      by_difference[s].push_back((dot(above, d_out) - dot(below, d_out)) / (2 * h));
    }
  }
  require_close(layer.inputs(), gradients, by_dual, 1e-12, "backward against dual numbers");
  require_close(layer.inputs(), gradients, by_difference, 1e-7, "backward against central differences");
}

template <class Case>
void check_float(const Case& layer, std::uint64_t seed, double forward_tolerance = 1e-5,
                 double backward_tolerance = 2e-5) {
  // Rounded to float first: both sides see the same numbers.
  const Values<float> in = converted<float>(random_values(layer.inputs(), seed));
  const Values<float> d_out = converted<float>(random_values(layer.outputs(), seed + 1));
  CpuDevice<Isa::baseline> reference(1);
  const Values<double> out = run_forward<double>(layer, reference, converted<double>(in));
  const Values<double> d_in = run_backward<double>(layer, reference, converted<double>(in), converted<double>(d_out));
  for_each_cpu(1, [&](auto& device, const std::string& isa) {
    require_close(layer.outputs(), converted<double>(run_forward<float>(layer, device, in)), out, forward_tolerance,
                  "float forward, " + isa);
    require_close(layer.inputs(), run_backward<float>(layer, device, in, d_out), d_in, backward_tolerance,
                  "float backward, " + isa);
  });
}

template <class Case>
void check_threads(const Case& layer, std::uint64_t seed) {
  const Values<float> in = converted<float>(random_values(layer.inputs(), seed));
  const Values<float> d_out = converted<float>(random_values(layer.outputs(), seed + 1));
  std::vector<Values<float>> forward;
  std::vector<Values<double>> backward;
  for (Index threads : {1, 1, 2, 3}) {
    for_each_cpu(threads, [&](auto& device, const std::string&) {
      forward.push_back(run_forward<float>(layer, device, in));
      backward.push_back(run_backward<float>(layer, device, in, d_out));
    });
  }
  const std::size_t devices = forward.size() / 4;
  for (std::size_t run = devices; run < forward.size(); ++run) {
    INFO("run " << run << " of " << devices << " devices with 1, 1, 2 and 3 threads");
    CHECK(forward[run] == forward[run % devices]);
    CHECK(backward[run] == backward[run % devices]);
  }
}

template <class Case>
void check_layer(const Case& layer, std::uint64_t seed = 1) {
  check_gradients(layer, seed);
  check_float(layer, seed);
  check_threads(layer, seed);
}

}  // namespace abh
